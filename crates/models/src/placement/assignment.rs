//! Solves the assignment problem for equal numbers of workers and jobs (Kuhn's method with potentials, O(n³)).

/// Returns the job of each worker in the assignment with the largest sum. `value` returns the value of a worker and a
/// job. A pair with the value −∞ is used only if it cannot be avoided.
pub(super) fn assign(count: usize, value: &dyn Fn(usize, usize) -> f64) -> Vec<usize> {
    const NEVER: f64 = 1e300;
    let cost = |worker: usize, job: usize| {
        let value = value(worker, job);
        if value.is_finite() { -value } else { NEVER }
    };
    // Rows are workers and columns are jobs, numbered from 1. Column 0 has the row that is being assigned.
    let mut row_of = vec![0; count + 1];
    let (mut rows, mut columns) = (vec![0.0; count + 1], vec![0.0; count + 1]);
    for row in 1..=count {
        row_of[0] = row;
        let mut slack = vec![f64::INFINITY; count + 1];
        let (mut before, mut is_done) = (vec![0; count + 1], vec![false; count + 1]);
        let mut column = 0;
        loop {
            is_done[column] = true;
            let (at, mut least, mut next) = (row_of[column], f64::INFINITY, 0);
            for other in (1..=count).filter(|other| !is_done[*other]) {
                let reduced = cost(at - 1, other - 1) - rows[at] - columns[other];
                if reduced < slack[other] {
                    (slack[other], before[other]) = (reduced, column);
                }
                if slack[other] < least {
                    (least, next) = (slack[other], other);
                }
            }
            for other in 0..=count {
                if is_done[other] {
                    rows[row_of[other]] += least;
                    columns[other] -= least;
                } else {
                    slack[other] -= least;
                }
            }
            column = next;
            if row_of[column] == 0 {
                break;
            }
        }
        while column != 0 {
            row_of[column] = row_of[before[column]];
            column = before[column];
        }
    }
    let mut jobs = vec![0; count];
    (1..=count).for_each(|job| jobs[row_of[job] - 1] = job - 1);
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_all_permutations_is_found() {
        let values =
            [[7.0, 5.0, 9.0, 1.0], [4.0, 4.5, 8.0, 2.0], [3.0, 1.0, 6.0, 5.0], [2.0, 2.0, 7.0, f64::NEG_INFINITY]];
        let sum = |jobs: &[usize]| jobs.iter().enumerate().map(|(worker, job)| values[worker][*job]).sum::<f64>();
        let mut best = f64::NEG_INFINITY;
        for number in 0..256 {
            let jobs = [number & 3, number >> 2 & 3, number >> 4 & 3, number >> 6];
            if (0..4).all(|job| jobs.contains(&job)) {
                best = best.max(sum(&jobs));
            }
        }
        assert_eq!(sum(&assign(4, &|worker, job| values[worker][job])), best);
        assert_eq!(assign(0, &|_, _| 0.0), []);
    }
}
