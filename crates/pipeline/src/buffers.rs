//! Reads the section `buffers:`, the input queues of modules.

use forebay_graph::SetupError;
use forebay_units::wording::counted;

use crate::faults::FaultCollector;
use crate::language::Buffer;
use crate::section::{entries, read};
use crate::wiring::Ends;
use crate::yaml::Node;

/// Returns the fault of a parameter `trigger` that is greater than the largest batch.
pub(crate) fn unreached(trigger: u64, batch: usize) -> SetupError {
    let wrong = format!("a trigger of {} is never reached", counted(trigger, "packet"));
    SetupError::wrong("trigger", trigger, wrong, format!("0 to {batch}, the largest batch"))
}

/// Returns the input queue of each module, in the order of the configuration. Modules without an entry have the
/// default. `batch` is the largest batch.
pub(crate) fn read_buffers(root: &Node, ends: &Ends, batch: usize, faults: &mut FaultCollector) -> Vec<Buffer> {
    let mut buffers = vec![Buffer::default(); ends.modules.len()];
    for entry in entries(root, "buffers") {
        let module = match ends.module(&entry.key, "buffers belong to modules") {
            Ok(module) => module,
            Err(wrong) => {
                faults.add(entry.place, wrong);
                continue;
            }
        };
        let Some(buffer) = read::<Buffer>(faults, root, &["buffers", &entry.key], &entry.value) else { continue };
        if buffer.trigger > batch {
            faults.add_all(root, &["buffers", &entry.key], unreached(buffer.trigger as u64, batch));
        }
        buffers[module] = buffer;
    }
    buffers
}
