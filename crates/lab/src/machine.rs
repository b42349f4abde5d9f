//! The machine of an experiment, as its report describes it.

use std::fs;

use forebay_host::cores_here;
use forebay_measure::machine::allowed_cores;
use forebay_protocol::report::Cpu;
use serde::Serialize;

/// The properties of a machine that a reader must know. An unknown property is `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// The CPU and its clock.
    pub cpu: Cpu,
    /// The cores that the experiment could use.
    pub cores: Vec<usize>,
    /// The number of NUMA nodes that these cores belong to.
    pub nodes: usize,
    /// Whether the machine is a virtual machine.
    pub virtual_machine: Option<bool>,
    /// The operating system.
    pub kernel: Option<String>,
    /// Whether the machine has hardware counters of instructions and cycles.
    pub counters: Option<bool>,
}

impl Machine {
    /// Describes the machine on which this process runs.
    #[must_use]
    pub fn this() -> Self {
        let cores = allowed_cores();
        let mut nodes: Vec<_> = cores_here(&cores).into_iter().map(|core| core.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let read = |file: &str| fs::read_to_string(file).ok();
        let kernel = read("/proc/sys/kernel/osrelease").map(|release| format!("Linux {}", release.trim()));
        let events = fs::read_dir("/sys/bus/event_source/devices").ok().map(|all| {
            all.flatten().any(|device| {
                let name = device.file_name();
                let name = name.to_string_lossy();
                // There is one device for all cores, or one for each type of core (`cpu_core`, `cpu_atom`). On Arm, the
                // device has the name of the core.
                name.starts_with("cpu") || name.starts_with("armv")
            })
        });
        Self {
            cpu: forebay_measure::machine::cpu(),
            nodes: nodes.len(),
            cores,
            virtual_machine: read("/proc/cpuinfo").and_then(|text| is_virtual(&text)),
            kernel,
            counters: events,
        }
    }

    /// Returns names and values for the report.
    pub(crate) fn facts(&self) -> Vec<(String, String)> {
        let described = |known: Option<bool>, yes: &str, no: &str| match known {
            Some(true) => yes.to_owned(),
            Some(false) => no.to_owned(),
            None => "n/a".to_owned(),
        };
        let cores: Vec<_> = self.cores.iter().map(usize::to_string).collect();
        let facts = [
            ("CPU", self.cpu.model.clone()),
            ("Cores", format!("{} ({}), {} NUMA node(s)", self.cores.len(), cores.join(", "), self.nodes)),
            ("Virtual machine", described(self.virtual_machine, "yes", "no")),
            ("Hardware counters", described(self.counters, "available", "n/a: this machine has none")),
            ("System", self.kernel.clone().unwrap_or_else(|| "n/a".to_owned())),
        ];
        facts.map(|(name, fact)| (name.to_owned(), fact)).to_vec()
    }
}

/// Returns whether the CPU's flags show a hypervisor. Only x86 has such a flag.
fn is_virtual(listing: &str) -> Option<bool> {
    let flags = listing.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'))?.1;
    Some(flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hypervisor_shows_in_the_flags() {
        assert_eq!(is_virtual("model name\t: x\nflags\t\t: fpu hypervisor avx2\n"), Some(true));
        assert_eq!(is_virtual("flags\t\t: fpu avx2\n"), Some(false));
        assert_eq!(is_virtual("Features\t: fp asimd\n"), None);
    }
}
