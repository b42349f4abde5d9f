//! The step of the paper's full controller (Batchy section 4.3 and appendix D): one projected-gradient step each period, from
//! where the system is, on the model by triggers (equations 11 to 13).
//!
//! It differs from what was published where that overshoots: time left is divided by the *sum* of what the step takes along a path,
//! and whole triggers are a packet more than the step only where all flows have time for it.

use super::Model;
use super::measured::{Bound, Measured, ROUNDING};
use super::projection::Basis;

/// What counts as nothing, relative to what it is a sum of.
const NOTHING: f64 = 1e-9;
/// What rounding leaves of a projection, relative to what was projected.
const RESIDUE: f64 = 1e-13;

impl Model {
    /// Triggers after one step.
    ///
    /// Only modules with a trigger, and with packets, take part. No flow gets beyond its guarded objective by the step, or, where it
    /// is beyond already, further.
    #[must_use]
    pub fn gradient_step(&self, measured: &Measured<'_>) -> Vec<usize> {
        let bounds = self.bounds(measured);
        let now = measured.triggers;
        let step = self.direction(&bounds, measured);
        let rooms: Vec<f64> = bounds.iter().map(|bound| bound.limit.max(bound.delay)).collect();
        let mut length = self.longest(&bounds, now, &step);
        // What is clamped at 1 gives back less than the step counts on: then a shorter one.
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

    /// The direction in which the load falls fastest, while the delays of flows in violation stay; by module, 0 where nothing moves.
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
            // What projecting leaves of something by rounding is no step, however short.
            let residue = RESIDUE * size(&down);
            step.iter_mut().filter(|by| by.abs() <= residue).for_each(|by| *by = 0.0);
            if size(&step) <= NOTHING * size(&down) {
                // No way on: from a flow whose delay could as well fall, if there is one, anew without it.
                let shares = basis.shares(&along);
                let least = shares.iter().copied().fold(0.0, f64::min);
                if least >= -NOTHING * size(&shares) {
                    return vec![0.0; now.len()];
                }
                let keeps = |share: &f64| *share > least * (1.0 - NOTHING);
                rows = rows.into_iter().zip(&shares).filter_map(|(row, share)| keeps(share).then_some(row)).collect();
                continue;
            }
            // What is at its bound, and would go on, is not free.
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

    /// How often the step can be taken with all flows within their guarded objectives, and no trigger above the largest batch.
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

/// Rows of delay gradients with modules that the same of these flows pass taken together: in all of them they have the same slopes,
/// so that projecting changes only what lies along those. There are as many of such groups as ways split, not as modules.
struct Shared {
    /// By flow: how long its row is in each group.
    rows: Vec<Vec<f64>>,
    /// By group: places in `free` with slopes, which are of length 1 together.
    groups: Vec<Vec<(usize, f64)>>,
}

impl Shared {
    fn new(model: &Model, flows: &[usize], free: &[usize]) -> Self {
        let mut passing = vec![Vec::new(); model.modules().len()];
        for (row, &flow) in flows.iter().enumerate() {
            model.flows()[flow].path.iter().for_each(|&at| passing[at].push(row));
        }
        let mut order: Vec<usize> = (0..free.len()).filter(|&place| !passing[free[place]].is_empty()).collect();
        order.sort_by(|&a, &b| passing[free[a]].cmp(&passing[free[b]]));
        let (mut rows, mut groups) = (vec![Vec::new(); flows.len()], Vec::new());
        for group in order.chunk_by(|&a, &b| passing[free[a]] == passing[free[b]]) {
            let length = group.iter().map(|&place| model.delay_slope(free[place]).powi(2)).sum::<f64>().sqrt();
            rows.iter_mut().for_each(|row| row.push(0.0));
            passing[free[group[0]]].iter().for_each(|&row| rows[row][groups.len()] = length);
            groups.push(group.iter().map(|&place| (place, model.delay_slope(free[place]) / length)).collect());
        }
        Self { rows, groups }
    }

    /// By group, what a vector has along its slopes.
    fn along(&self, vector: &[f64]) -> Vec<f64> {
        self.groups.iter().map(|group| group.iter().map(|&(place, slope)| vector[place] * slope).sum()).collect()
    }

    /// A vector with something else along the slopes of groups.
    fn with(&self, vector: &[f64], before: &[f64], after: &[f64]) -> Vec<f64> {
        let mut changed = vector.to_vec();
        for (group, by) in self.groups.iter().zip(after.iter().zip(before).map(|(after, before)| after - before)) {
            group.iter().for_each(|&(place, slope)| changed[place] += by * slope);
        }
        changed
    }
}
