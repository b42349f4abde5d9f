//! Hysteresis: a buffer that was reduced because a flow was too slow is not enlarged at once.

use forebay_protocol::{Layout, Snapshot};

use crate::memory::Memory;
use crate::period::{is_another, rate};

/// Remembers, for each module, that its buffer was too large for the current traffic and objectives.
#[derive(Clone, Debug, Default)]
pub(super) struct Cooldowns {
    /// By module: the memory of the last reduction.
    modules: Vec<Memory>,
    /// By flow: the objective, in seconds, for which the memory is valid.
    objectives: Vec<Option<f64>>,
    /// The packets per second for which the memory is valid.
    packets: f64,
}

impl Cooldowns {
    /// Advances by one period. Forgets all reductions if the traffic or an objective has changed. Must be called before
    /// the other functions in each period.
    pub(super) fn pass(&mut self, layout: &Layout, snapshot: &Snapshot) {
        let packets = rate(snapshot);
        if is_another(self.packets, packets)
            || !layout.flows.iter().map(|flow| flow.slo_s).eq(self.objectives.iter().copied())
        {
            self.objectives.clear();
            self.objectives.extend(layout.flows.iter().map(|flow| flow.slo_s));
            self.packets = packets;
            self.modules.clear();
        }
        self.modules.resize(layout.modules.len(), Memory::default());
        self.modules.iter_mut().for_each(Memory::pass);
    }

    /// Records that a module's buffer has been reduced or removed.
    pub(super) fn begin(&mut self, module: usize) {
        self.modules[module].fails();
    }

    /// Returns whether a module's buffer may grow again.
    pub(super) fn over(&self, module: usize) -> bool {
        !self.modules[module].lasts()
    }
}
