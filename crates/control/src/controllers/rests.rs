//! Hysteresis: what was taken from a buffer because a flow was too slow is not given back at once.

use crate::memory::Memory;

/// By module: when it was too much last.
#[derive(Clone, Debug, Default)]
pub(super) struct Rests(Vec<Memory>);

impl Rests {
    /// A period has passed, for so many modules.
    pub(super) fn pass(&mut self, modules: usize) {
        self.0.resize(modules, Memory::default());
        self.0.iter_mut().for_each(Memory::pass);
    }

    /// A module's buffer has been made smaller, or taken away.
    pub(super) fn begin(&mut self, module: usize) {
        self.0[module].fails();
    }

    /// Whether a module may have more of a buffer.
    pub(super) fn over(&self, module: usize) -> bool {
        !self.0[module].lasts()
    }
}
