//! The cost of holding packets until a batch is full, and the modules where this cost exceeds the saving by fewer
//! calls.
//!
//! The models of the papers count only calls and packets. But a waiting packet leaves the caches, and the buffer that
//! the next packet would have used leaves them, too. Packets then cost more in all later modules and in the port. If
//! packets arrive in large batches already, this additional cost is higher than the saving by fewer calls.

use super::Model;
use super::waiting::{Arrivals, Called};

/// The number of rounds that remove modules and calculate the triggers again.
const ROUNDS: usize = 3;

impl Model {
    /// Returns triggers that save more than the cost of holding packets, starting from `triggers`. All are 0 if no
    /// triggers save more.
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
                // Packets no longer wait in the barred modules. Other modules can use this time.
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

    /// Returns groups of modules that should perhaps hold no packets. Empty groups are left out.
    ///
    /// - Modules whose batches save less than holding packets costs. The saving includes later modules, up to the next
    ///   module that gathers packets.
    /// - If packets are held more than once: the modules that hold them first.
    /// - If packets are held more than once: the modules that hold them again.
    fn candidates(&self, arrivals: &Arrivals, triggers: &[usize]) -> Vec<Vec<usize>> {
        let Called { arrived, batches, .. } = self.called(arrivals, triggers);
        // By module: the last module that gathers packets, on the path from the source up to and including this module.
        let mut gathers: Vec<Option<usize>> = vec![None; triggers.len()];
        // By module: the batch size without gathering in this module, relative to the batch size with gathering.
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
