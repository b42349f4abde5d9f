//! Hysteresis: a buffer that was taken away because a flow was too slow is not given back at once.

/// Periods for which it is not.
const PERIODS: u32 = 10;

/// By module: for how many periods it is to have no buffer.
#[derive(Clone, Debug, Default)]
pub(super) struct Rests(Vec<u32>);

impl Rests {
    /// A period has passed, for so many modules.
    pub(super) fn pass(&mut self, modules: usize) {
        self.0.resize(modules, 0);
        self.0.iter_mut().for_each(|left| *left = left.saturating_sub(1));
    }

    /// A module's buffer has been taken away.
    pub(super) fn begin(&mut self, module: usize) {
        self.0[module] = PERIODS;
    }

    /// Whether a module may have a buffer.
    pub(super) fn over(&self, module: usize) -> bool {
        self.0[module] == 0
    }
}
