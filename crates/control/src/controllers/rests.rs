//! Hysteresis: what was taken from a buffer because a flow was too slow is not given back at once.

use forebay_graph::{Layout, Snapshot};

use crate::memory::Memory;
use crate::period::{is_another, rate};

/// When each module's buffer was too much last, with the present traffic and objectives.
#[derive(Clone, Debug, Default)]
pub(super) struct Rests {
    modules: Vec<Memory>,
    /// By flow.
    objectives: Vec<Option<f64>>,
    /// Packets a second.
    packets: f64,
}

impl Rests {
    /// A period has passed.
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

    /// A module's buffer has been made smaller, or taken away.
    pub(super) fn begin(&mut self, module: usize) {
        self.modules[module].fails();
    }

    /// Whether a module may have more of a buffer.
    pub(super) fn over(&self, module: usize) -> bool {
        !self.modules[module].lasts()
    }
}
