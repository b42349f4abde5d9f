//! Projects vectors onto the space orthogonal to given vectors: `I − Mᵀ(MMᵀ)⁺M`, where these vectors are the rows of M.
//!
//! With an orthonormal basis Q of the rows, `Mᵀ(MMᵀ)⁺M` is `QᵀQ`, for any rank, and no matrix is inverted. Each step
//! takes the row with the largest remainder relative to its length. So the result does not depend on the order of the
//! rows.

/// A row counts as dependent on other rows if its remainder is at most this fraction of its length.
const DEPENDENT: f64 = 1e-9;

/// An orthonormal basis of rows, and the coefficients of the rows in this basis.
pub(super) struct Basis {
    /// The orthonormal vectors.
    basis: Vec<Vec<f64>>,
    /// For each vector of the basis: the row that it was made from.
    from: Vec<usize>,
    /// For each row: its coefficients of the vectors of the basis, up to the vector that was made from it.
    parts: Vec<Vec<f64>>,
}

impl Basis {
    /// Creates the basis of rows of equal length. Rows may depend on each other or be 0.
    pub(super) fn new(rows: &[Vec<f64>]) -> Self {
        let mut found = Self { basis: Vec::new(), from: Vec::new(), parts: vec![Vec::new(); rows.len()] };
        let lengths: Vec<f64> = rows.iter().map(|row| dot(row, row).sqrt()).collect();
        let mut remainders: Vec<Vec<f64>> = rows.to_vec();
        let mut open: Vec<usize> = (0..rows.len()).filter(|&row| lengths[row] > 0.0).collect();
        loop {
            let share = |&row: &usize| dot(&remainders[row], &remainders[row]).sqrt() / lengths[row];
            open.retain(|row| share(row) > DEPENDENT);
            let Some(longest) = open.iter().copied().max_by(|a, b| share(a).total_cmp(&share(b))) else {
                return found;
            };
            let length = dot(&remainders[longest], &remainders[longest]).sqrt();
            let vector: Vec<f64> = remainders[longest].iter().map(|value| value / length).collect();
            for &row in &open {
                // Repeated once, to remove rounding errors.
                let mut part = 0.0;
                for _ in 0..2 {
                    let again = dot(&remainders[row], &vector);
                    remainders[row].iter_mut().zip(&vector).for_each(|(value, by)| *value -= again * by);
                    part += again;
                }
                found.parts[row].push(part);
            }
            found.basis.push(vector);
            found.from.push(longest);
            open.retain(|&row| row != longest);
        }
    }

    /// Returns the part of a vector that is orthogonal to all rows.
    pub(super) fn project(&self, vector: &[f64]) -> Vec<f64> {
        let mut rest = vector.to_vec();
        for _ in 0..2 {
            for by in &self.basis {
                let part = dot(&rest, by);
                rest.iter_mut().zip(by).for_each(|(value, by)| *value -= part * by);
            }
        }
        rest
    }

    /// Returns a coefficient for each row. The rows times their coefficients add up to the vector without the part that
    /// is orthogonal to all rows: `(MMᵀ)⁺M` times the vector. If rows depend on each other, the coefficients have the
    /// least sum of squares.
    pub(super) fn shares(&self, vector: &[f64]) -> Vec<f64> {
        // With the rows as L·Q: Lᵀ·shares = Q·vector. The number of independent equations is the number of vectors in
        // the basis.
        let column = |at: usize| self.parts.iter().map(|parts| parts.get(at).copied().unwrap_or(0.0)).collect();
        let columns: Vec<Vec<f64>> = (0..self.basis.len()).map(column).collect();
        let equations = Basis::new(&columns);
        let mut shares = vec![0.0; self.parts.len()];
        for (number, &equation) in equations.from.iter().enumerate() {
            let known = dot(&columns[equation], &shares);
            let by = (dot(vector, &self.basis[equation]) - known) / equations.parts[equation][number];
            shares.iter_mut().zip(&equations.basis[number]).for_each(|(share, along)| *share += by * along);
        }
        shares
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_depend_on_others_count_once() {
        let rows = [vec![1.0, 1.0, 0.0], vec![2.0, 2.0, 0.0], vec![0.0, 0.0, 0.0], vec![1.0, 1.0, 1e-14]];
        let basis = Basis::new(&rows);
        assert_eq!(basis.basis.len(), 1);
        let rest = basis.project(&[3.0, 1.0, 5.0]);
        assert!((rest[0] - 1.0).abs() < 1e-12 && (rest[1] + 1.0).abs() < 1e-12 && (rest[2] - 5.0).abs() < 1e-12);
    }

    #[test]
    fn shares_reproduce_the_vector() {
        let rows = [vec![1.0, 2.0, 0.0, 0.0], vec![0.0, 1.0, 1.0, 0.0], vec![1.0, 0.0, 0.0, 3.0]];
        let vector: Vec<f64> = (0..4).map(|at| 2.0 * rows[0][at] - 0.5 * rows[1][at] + 4.0 * rows[2][at]).collect();
        let shares = Basis::new(&rows).shares(&vector);
        assert!(
            shares.iter().zip([2.0, -0.5, 4.0]).all(|(share, wanted)| (share - wanted).abs() < 1e-12),
            "{shares:?}"
        );
        // Equal rows have equal shares.
        let twice = [rows[0].clone(), rows[1].clone(), rows[0].clone(), rows[2].clone()];
        let shares = Basis::new(&twice).shares(&vector);
        let wanted = [1.0, -0.5, 1.0, 4.0];
        assert!(shares.iter().zip(wanted).all(|(share, wanted)| (share - wanted).abs() < 1e-12), "{shares:?}");
        assert!(Basis::new(&rows).project(&vector).iter().all(|rest| rest.abs() < 1e-12));
    }
}
