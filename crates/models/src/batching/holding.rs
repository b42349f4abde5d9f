//! The cost of holding packets until a batch is full, and the modules where it exceeds the saving.
//!
//! The models of the papers only count calls and packets. But a waiting packet leaves the caches, and so does the
//! buffer that the next packet would have used. Packets then cost more in all later modules, and in the port too. If
//! packets arrive in large batches anyway, this costs more than fewer calls save.

use super::Model;
use super::waiting::{Arrivals, Called};

/// The number of rounds that remove modules and calculate the triggers again.
const ROUNDS: usize = 3;

impl Model {
    /// Returns triggers that save more than the cost of holding packets; no triggers at all if they save less.
    pub(super) fn worth_holding(&self, arrivals: &Arrivals, triggers: Vec<usize>) -> Vec<usize> {
        if arrivals.price(true) <= 0.0 {
            return triggers;
        }
        let load = |triggers: &[usize]| self.called(arrivals, triggers).load;
        let (mut least, mut best, mut barred) = (load(&triggers), triggers, Vec::<usize>::new());
        for _ in 0..ROUNDS {
            let better = self.candidates(arrivals, &best).into_iter().map(|more| {
                let mut barred: Vec<usize> = barred.iter().copied().chain(more).collect();
                barred.sort_unstable();
                // The other modules can use the time that these modules needed.
                let found = self.fullest_triggers(arrivals, &barred);
                (load(&found), found, barred)
            });
            let Some((less, found, more)) = better.min_by(|(one, ..), (other, ..)| one.total_cmp(other)) else { break };
            if less >= least {
                break;
            }
            (least, best, barred) = (less, found, more);
        }
        let none = vec![0; best.len()];
        if load(&none) < least { none } else { best }
    }

    /// Returns groups of modules that should perhaps hold no packets. The first group: modules whose batches save less,
    /// in themselves and in later modules up to the next module that gathers, than holding packets costs. If packets
    /// are held more than once: the modules that hold them first, and the modules that hold them again.
    fn candidates(&self, arrivals: &Arrivals, triggers: &[usize]) -> Vec<Vec<usize>> {
        let Called { arrived, batches, .. } = self.called(arrivals, triggers);
        // The last module up to this one that gathers packets.
        let mut gathers: Vec<Option<usize>> = vec![None; triggers.len()];
        // The size of batches without gathering in this module, relative to the size with it.
        let mut part = vec![1.0; triggers.len()];
        let mut saves = vec![0.0; triggers.len()];
        let (mut first, mut again) = (Vec::new(), Vec::new());
        let mut price = vec![arrivals.held; triggers.len()];
        for (at, module) in self.modules().iter().enumerate() {
            let (arrived, batch) = (arrived[at], batches[at]);
            let outer = arrivals.before[at].and_then(|before| gathers[before]);
            gathers[at] = outer;
            if batch > arrived {
                (gathers[at], part[at]) = (Some(at), arrived / batch);
                if let Some(outer) = outer {
                    price[at] = arrivals.price(true);
                    again.push(at);
                    first.push(outer);
                }
            }
            if let Some(gatherer) = gathers[at] {
                let without = (batch * part[gatherer]).max(1.0);
                saves[gatherer] += self.rates()[at] * module.cpu.fixed * (without.recip() - batch.recip());
            }
        }
        first.sort_unstable();
        first.dedup();
        let wasted = |at: &usize| gathers[*at] == Some(*at) && saves[*at] <= price[*at] * self.rates()[*at];
        let wasted = (0..triggers.len()).filter(wasted).collect();
        [wasted, first, again].into_iter().filter(|modules: &Vec<usize>| !modules.is_empty()).collect()
    }
}
