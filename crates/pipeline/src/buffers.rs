//! Reads the section `buffers:`, the input queues of modules.

use forebay_graph::{SetupError, Target};

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
        let Ok(Target::Module(module)) = ends.find(&entry.key) else {
            let message = match ends.find(&entry.key) {
                Err(unknown) => format!("{unknown}; buffers belong to modules"),
                Ok(_) => format!("'{}' is a port: buffers belong to modules", entry.key),
            };
            faults.add(entry.place, message);
            continue;
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
