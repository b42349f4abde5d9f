//! Projection onto what is orthogonal to some vectors: `I − Mᵀ(MMᵀ)⁺M`, the rows of M being those vectors.
//!
//! With an orthonormal basis Q of the rows, `Mᵀ(MMᵀ)⁺M` is `QᵀQ`, whatever the rank is: no matrix is inverted. The basis is made
//! from the row that is left longest each time, so that which rows are told to depend on others does not hang on their order.

/// What is left of a row that is told to depend on others, by its length.
const DEPENDENT: f64 = 1e-9;

/// An orthonormal basis of rows, and how they are made of it.
pub(super) struct Basis {
    basis: Vec<Vec<f64>>,
    /// By vector of the basis: the row that it was made from.
    from: Vec<usize>,
    /// By row: how much it has of each vector of the basis, up to its own.
    parts: Vec<Vec<f64>>,
}

impl Basis {
    pub(super) fn new(rows: &[Vec<f64>]) -> Self {
        let mut found = Self { basis: Vec::new(), from: Vec::new(), parts: vec![Vec::new(); rows.len()] };
        let lengths: Vec<f64> = rows.iter().map(|row| dot(row, row).sqrt()).collect();
        let mut left: Vec<Vec<f64>> = rows.to_vec();
        let mut open: Vec<usize> = (0..rows.len()).filter(|&row| lengths[row] > 0.0).collect();
        loop {
            let share = |&row: &usize| dot(&left[row], &left[row]).sqrt() / lengths[row];
            open.retain(|row| share(row) > DEPENDENT);
            let Some(longest) = open.iter().copied().max_by(|a, b| share(a).total_cmp(&share(b))) else {
                return found;
            };
            let length = dot(&left[longest], &left[longest]).sqrt();
            let vector: Vec<f64> = left[longest].iter().map(|value| value / length).collect();
            for &row in &open {
                // Once more, for what rounding leaves.
                let mut part = 0.0;
                for _ in 0..2 {
                    let again = dot(&left[row], &vector);
                    left[row].iter_mut().zip(&vector).for_each(|(value, by)| *value -= again * by);
                    part += again;
                }
                found.parts[row].push(part);
            }
            found.basis.push(vector);
            found.from.push(longest);
            open.retain(|&row| row != longest);
        }
    }

    /// What of a vector is orthogonal to all rows.
    pub(super) fn project(&self, vector: &[f64]) -> Vec<f64> {
        let mut left = vector.to_vec();
        for _ in 0..2 {
            for by in &self.basis {
                let part = dot(&left, by);
                left.iter_mut().zip(by).for_each(|(value, by)| *value -= part * by);
            }
        }
        left
    }

    /// By row, how much of it a vector is made of, as far as it is made of rows: `(MMᵀ)⁺M` times the vector, the shares with the least
    /// squares where rows depend on each other.
    pub(super) fn shares(&self, vector: &[f64]) -> Vec<f64> {
        // With the rows as L·Q: Lᵀ·shares = Q·vector, which are as many independent equations as the basis has vectors.
        let column = |at: usize| self.parts.iter().map(|parts| parts.get(at).copied().unwrap_or(0.0)).collect();
        let columns: Vec<Vec<f64>> = (0..self.basis.len()).map(column).collect();
        let equations = Basis::new(&columns);
        let mut shares = vec![0.0; self.parts.len()];
        for (number, &equation) in equations.from.iter().enumerate() {
            let told = dot(&columns[equation], &shares);
            let by = (dot(vector, &self.basis[equation]) - told) / equations.parts[equation][number];
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
        let left = basis.project(&[3.0, 1.0, 5.0]);
        assert!((left[0] - 1.0).abs() < 1e-12 && (left[1] + 1.0).abs() < 1e-12 && (left[2] - 5.0).abs() < 1e-12);
    }

    #[test]
    fn shares_make_the_vector_again() {
        let rows = [vec![1.0, 2.0, 0.0, 0.0], vec![0.0, 1.0, 1.0, 0.0], vec![1.0, 0.0, 0.0, 3.0]];
        let vector: Vec<f64> = (0..4).map(|at| 2.0 * rows[0][at] - 0.5 * rows[1][at] + 4.0 * rows[2][at]).collect();
        let shares = Basis::new(&rows).shares(&vector);
        assert!(
            shares.iter().zip([2.0, -0.5, 4.0]).all(|(share, wanted)| (share - wanted).abs() < 1e-12),
            "{shares:?}"
        );
        // Of two that are the same, each has half.
        let twice = [rows[0].clone(), rows[1].clone(), rows[0].clone(), rows[2].clone()];
        let shares = Basis::new(&twice).shares(&vector);
        let wanted = [1.0, -0.5, 1.0, 4.0];
        assert!(shares.iter().zip(wanted).all(|(share, wanted)| (share - wanted).abs() < 1e-12), "{shares:?}");
        assert!(Basis::new(&rows).project(&vector).iter().all(|left| left.abs() < 1e-12));
    }
}
