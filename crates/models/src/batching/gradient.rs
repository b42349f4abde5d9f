//! The step of the paper's full controller (Batchy section 4.3 and appendix D): one projected-gradient step in each
//! period, from the present state, on the model by triggers (equations 11 to 13).
//!
//! This implementation differs from the paper in two points where the published step overshoots. The remaining time of
//! a flow is divided by the *sum* of the delays that the step adds along its path. A whole trigger is rounded up only
//! if all flows have time for it.

use super::Model;
use super::measured::{Bound, Measured, ROUNDING};
use super::projection::Basis;

/// The size below which a sum counts as 0, relative to its terms.
const NOTHING: f64 = 1e-9;
/// The relative size of rounding errors of a projection.
const RESIDUE: f64 = 1e-13;

impl Model {
    /// Returns the triggers after one step.
    ///
    /// Only modules with a trigger and with packets take part. The step brings no flow beyond its guarded objective,
    /// the objective without the reserve ([`Measured::guard`]). The delay of a flow that is already beyond its guarded
    /// objective does not increase.
    #[must_use]
    pub fn gradient_step(&self, measured: &Measured<'_>) -> Vec<usize> {
        let bounds = self.bounds(measured);
        let now = measured.triggers;
        let step = self.direction(&bounds, measured);
        let rooms: Vec<f64> = bounds.iter().map(|bound| bound.limit.max(bound.delay)).collect();
        let mut length = self.longest(&bounds, now, &step);
        // No trigger becomes less than 1. So a trigger that the step would lower further frees less delay than the step
        // assumes. Then a shorter step is tried.
        while length > 0.0 {
            let wanted: Vec<f64> = now.iter().zip(&step).map(|(now, by)| *now as f64 + length * by).collect();
            let clamp = |(now, wanted): (&usize, &f64)| match *now {
                0 => 0,
                _ => (wanted + NOTHING).floor().clamp(1.0, self.largest().floor()) as usize,
            };
            let mut to: Vec<usize> = now.iter().zip(&wanted).map(clamp).collect();
            let fits =
                |(bound, room): (&Bound, &f64)| bound.delay + self.change(bound.flow, now, &to) <= *room * ROUNDING;
            if bounds.iter().zip(&rooms).all(fits) {
                let up = |(to, wanted): (&usize, &f64)| {
                    (wanted - NOTHING).ceil().min(self.largest().floor()).max(*to as f64)
                };
                let most: Vec<usize> = to.iter().zip(&wanted).map(|both| up(both) as usize).collect();
                self.round_up(now, &bounds, &rooms, &mut to, &most);
                return to;
            }
            length = if length > f64::MIN_POSITIVE { length / 2.0 } else { 0.0 };
        }
        now.to_vec()
    }

    /// Returns the direction of the step, with one component for each module; 0 for modules that do not change. Among
    /// the directions in which the delays of flows in violation do not increase, this is the direction in which the
    /// load decreases fastest.
    fn direction(&self, bounds: &[Bound], measured: &Measured<'_>) -> Vec<f64> {
        let now = measured.triggers;
        let triggers: Vec<f64> = now.iter().map(|&trigger| trigger as f64).collect();
        let gradient = self.load_gradient(&triggers);
        let mut free: Vec<usize> = (0..now.len()).filter(|&at| measured.moves(at) && self.rates()[at] > 0.0).collect();
        let mut rows: Vec<usize> = bounds.iter().filter(|bound| bound.violated()).map(|bound| bound.flow).collect();
        loop {
            let down: Vec<f64> = free.iter().map(|&at| -gradient[at]).collect();
            let shared = Shared::new(self, &rows, &free);
            let basis = Basis::new(&shared.rows);
            let size = |vector: &[f64]| vector.iter().fold(0.0f64, |most, value| most.max(value.abs()));
            let along = shared.along(&down);
            let mut step = shared.with(&down, &along, &basis.project(&along));
            // A component as small as the rounding error of the projection is set to 0.
            let residue = RESIDUE * size(&down);
            step.iter_mut().filter(|by| by.abs() <= residue).for_each(|by| *by = 0.0);
            if size(&step) <= NOTHING * size(&down) {
                // No step decreases the load and keeps the delays of all flows in `rows`. If no flow has a negative
                // share, there is no step. With a negative share, the load and the delay of this flow can decrease
                // together. The flow with the most negative share is removed from `rows`, and the loop starts again.
                let shares = basis.shares(&along);
                let least = shares.iter().copied().fold(0.0, f64::min);
                if least >= -NOTHING * size(&shares) {
                    return vec![0.0; now.len()];
                }
                let keeps = |share: &f64| *share > least * (1.0 - NOTHING);
                rows = rows.into_iter().zip(&shares).filter_map(|(row, share)| keeps(share).then_some(row)).collect();
                continue;
            }
            // A module whose trigger is at its bound and would move beyond it is removed.
            let held = |(at, by): (&usize, &f64)| {
                (*by > 0.0 && triggers[*at] + 1.0 > self.largest()) || (*by < 0.0 && now[*at] == 1)
            };
            let moves: Vec<bool> = free.iter().zip(&step).map(|both| !held(both)).collect();
            if moves.iter().all(|moves| *moves) {
                let mut by_module = vec![0.0; now.len()];
                free.iter().zip(step).for_each(|(&at, by)| by_module[at] = by);
                return by_module;
            }
            free = free.into_iter().zip(moves).filter_map(|(at, moves)| moves.then_some(at)).collect();
        }
    }

    /// Returns the largest multiple of `step` with which all flows are within their guarded objectives and all triggers
    /// within the largest batch. 0 if nothing limits the step.
    fn longest(&self, bounds: &[Bound], now: &[usize], step: &[f64]) -> f64 {
        let up = (0..now.len()).filter(|&at| step[at] > 0.0).map(|at| (self.largest() - now[at] as f64) / step[at]);
        let flows = bounds.iter().filter_map(|bound| {
            let path = self.flows()[bound.flow].path.iter().filter(|at| step[**at] != 0.0);
            let (sum, size) = path
                .map(|&at| self.delay_slope(at) * step[at])
                .fold((0.0, 0.0), |(sum, size), by| (sum + by, size + f64::abs(by)));
            (sum > NOTHING * size).then(|| (bound.limit - bound.delay).max(0.0) / sum)
        });
        let length = up.chain(flows).fold(f64::INFINITY, f64::min);
        if length.is_finite() { length } else { 0.0 }
    }
}

/// The rows of the delay gradients. Modules that the same flows pass form one group. The modules of a group have the
/// same slopes in all rows, so projection changes only the component along these slopes. The number of groups depends
/// on the number of branches, not on the number of modules.
struct Shared {
    /// By flow: the length of its row in each group.
    rows: Vec<Vec<f64>>,
    /// By group: the index of each module in `free` (see [`new`](Self::new)) with its slope. The slopes of a group are
    /// normalised to length 1.
    groups: Vec<Vec<(usize, f64)>>,
}

impl Shared {
    /// Creates the rows of `flows` for the modules `free`. The vectors of the other methods have one component for
    /// each module in `free`.
    fn new(model: &Model, flows: &[usize], free: &[usize]) -> Self {
        let mut passing = vec![Vec::new(); model.modules().len()];
        for (row, &flow) in flows.iter().enumerate() {
            model.flows()[flow].path.iter().for_each(|&at| passing[at].push(row));
        }
        let mut order: Vec<usize> = (0..free.len()).filter(|&index| !passing[free[index]].is_empty()).collect();
        order.sort_by(|&a, &b| passing[free[a]].cmp(&passing[free[b]]));
        let (mut rows, mut groups) = (vec![Vec::new(); flows.len()], Vec::new());
        for group in order.chunk_by(|&a, &b| passing[free[a]] == passing[free[b]]) {
            let length = group.iter().map(|&index| model.delay_slope(free[index]).powi(2)).sum::<f64>().sqrt();
            rows.iter_mut().for_each(|row| row.push(0.0));
            passing[free[group[0]]].iter().for_each(|&row| rows[row][groups.len()] = length);
            groups.push(group.iter().map(|&index| (index, model.delay_slope(free[index]) / length)).collect());
        }
        Self { rows, groups }
    }

    /// Returns, for each group, the component of a vector along its slopes.
    fn along(&self, vector: &[f64]) -> Vec<f64> {
        self.groups.iter().map(|group| group.iter().map(|&(index, slope)| vector[index] * slope).sum()).collect()
    }

    /// Returns `vector` with the components `after` along the slopes of the groups. `before` are its present
    /// components, from [`along`](Self::along).
    fn with(&self, vector: &[f64], before: &[f64], after: &[f64]) -> Vec<f64> {
        let mut changed = vector.to_vec();
        for (group, by) in self.groups.iter().zip(after.iter().zip(before).map(|(after, before)| after - before)) {
            group.iter().for_each(|&(index, slope)| changed[index] += by * slope);
        }
        changed
    }
}
