//! Reads the section `buffers:`, the input queues of modules.

use forebay_graph::Target;

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
            let message = ends.find(&entry.key).err().unwrap_or_else(|| format!("'{}' is a port", entry.key));
            faults.add(entry.place, format!("{message}: buffers belong to modules"));
            continue;
        };
        let Some(buffer) = read::<Buffer>(faults, root, &["buffers", &entry.key], &entry.value) else { continue };
        if buffer.trigger > batch {
            let message = format!(
                "a trigger of {} packets is never reached: allowed are 0 to {batch}, the largest batch",
                buffer.trigger
            );
            faults.add_at(root, &["buffers", &entry.key, "trigger"], &message);
        }
        buffers[module] = buffer;
    }
    buffers
}
