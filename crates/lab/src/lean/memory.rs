//! Measures the cost of handing a packet over by the level of the memory hierarchy: NALM's Table VI, on this machine.

use forebay_bench::handover::{self, Handover};
use forebay_measure::machine::allowed_cores;

use crate::{LabError, Progress};

/// Measures one pair of cores of each relation that exists, and the memory of the first core. `None` if this process
/// may use no core.
pub(super) fn measure(repeats: usize, progress: &mut dyn Progress) -> Result<Option<Handover>, LabError> {
    progress.step("hand-over between cores");
    let cores = allowed_cores();
    if cores.is_empty() {
        return Ok(None);
    }
    let pairs = handover::pairs(&cores, false);
    handover::measure(&pairs, repeats, &mut |_, _| {}).map(Some).map_err(LabError::Handover)
}
