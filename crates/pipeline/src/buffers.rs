//! Reads the section `buffers:`, the input queues of modules.

use forebay_graph::SetupError;

use crate::faults::FaultCollector;
use crate::language::Buffer;
use crate::section::{entries, read};
use crate::wiring::Ends;
use crate::yaml::Node;

/// Returns the input queue of each module, in the order of the configuration. Modules without an entry have the
/// default. `batch` is the largest batch.
pub(crate) fn read_buffers(root: &Node, ends: &Ends, batch: usize, faults: &mut FaultCollector) -> Vec<Buffer> {
    let mut buffers = vec![Buffer::default(); ends.modules.len()];
    for entry in entries(root, "buffers") {
        let module = match ends.module(&entry.key, "buffers") {
            Ok(module) => module,
            Err(wrong) => {
                faults.add(entry.place, wrong);
                continue;
            }
        };
        let Some(buffer) = read::<Buffer>(faults, root, &["buffers", &entry.key], &entry.value) else { continue };
        if buffer.trigger > batch {
            let wrong = format!("a trigger of {} packets is never reached", buffer.trigger);
            let allowed = format!("0 to {batch}, the largest batch");
            let error = SetupError::wrong("trigger", buffer.trigger, wrong, allowed);
            faults.add_all(root, &["buffers", &entry.key], error);
        }
        buffers[module] = buffer;
    }
    buffers
}
