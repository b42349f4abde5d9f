//! What it costs to hold packets until a batch is full, and where that is more than the batch saves.
//!
//! The papers' models know calls and packets. But a packet that waits goes out of the caches, and with it the buffer that the next one to
//! arrive would have had: packets cost more from there on, at their port as well. Where packets come in large batches anyhow that is more
//! than fewer calls save.

use super::Model;
use super::waiting::{Arrivals, Called};

/// How often what is wasted is left out, and the rest done again.
const ROUNDS: usize = 3;

impl Model {
    /// Of triggers that keep objectives, those that save more than holding packets for them costs; none at all where that is less.
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
                // What those took of objectives is others' then.
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

    /// Modules that may rather hold none, together: those whose batches save less, there and behind as far as no other gathers, than
    /// holding packets for them costs; and where packets are held more than once, those that do so first, and those that do so again.
    fn candidates(&self, arrivals: &Arrivals, triggers: &[usize]) -> Vec<Vec<usize>> {
        let Called { arrived, batches, .. } = self.called(arrivals, triggers);
        // By module: the last one up to it that gathers, and in which part of its batches packets would come without.
        let mut gathers: Vec<Option<usize>> = vec![None; triggers.len()];
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
