//! The kernel's parameters and settings: isolated CPUs, its clock, and the permission to count events.

use crate::cpu::{FOLDER, flag, name};
use crate::fact::{Fact, Known};
use crate::list::KernelList;
use crate::tree::{Tree, Unknown};

/// The processor's description.
pub const CPUINFO: &str = "/proc/cpuinfo";
/// The folder of event counters.
pub const COUNTERS: &str = "/sys/bus/event_source/devices";
/// The folder of the kernel's clock.
const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0";

/// The kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The kernel's command line.
    pub command_line: Fact<String>,
    /// The CPUs that the scheduler does not use (`isolcpus`).
    pub isolated: Fact<KernelList>,
    /// The CPUs without a periodic tick (`nohz_full`).
    pub tickless: Fact<KernelList>,
    /// The clock that the kernel uses.
    pub clock: Fact<String>,
    /// The clocks that the kernel could use.
    pub clocks: Fact<Vec<String>>,
    /// The restriction on counting events. Below 3, each program may count its own events.
    pub paranoid: Fact<i64>,
    /// The folder of the processor's counters. `Some(None)` means that the processor has no counters. `None` means that
    /// the folder of all counters is missing or empty.
    pub counters: Option<Option<String>>,
    /// True if the kernel moves memory between nodes by itself.
    pub numa_balancing: Fact<bool>,
    /// The processor's features.
    pub features: Fact<Features>,
}

/// The features of the processor that the checks use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// True if the time-stamp counter has a constant rate.
    pub constant_tsc: bool,
    /// True if the time-stamp counter runs in every idle state.
    pub nonstop_tsc: bool,
    /// True if this is a virtual machine.
    pub hypervisor: bool,
}

impl Kernel {
    pub(crate) fn read(tree: &Tree) -> Self {
        let list = |file: &str| tree.fact(&format!("{FOLDER}/{file}"), "a list of CPUs", |text| text.parse().ok());
        Self {
            command_line: tree.fact("/proc/cmdline", "text", |text| Some(text.to_owned())),
            isolated: list("isolated"),
            tickless: list("nohz_full"),
            clock: name(tree, &format!("{CLOCK}/current_clocksource")),
            clocks: tree.fact(&format!("{CLOCK}/available_clocksource"), "words", |text| {
                Some(text.split_ascii_whitespace().map(str::to_owned).collect())
            }),
            paranoid: tree.fact("/proc/sys/kernel/perf_event_paranoid", "a number", |text| text.parse().ok()),
            counters: counters(tree),
            numa_balancing: tree.fact("/proc/sys/kernel/numa_balancing", "0, 1 or 2", flag),
            features: features(tree),
        }
    }

    /// Returns true if the processor reports that this is a virtual machine. Returns `false` if that is unknown.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.features.value().is_some_and(|features| features.hypervisor)
    }
}

/// Returns the folder of the processor's counters: `cpu`, on hybrid processors `cpu_core`, or on ARM `armv8_…`. The
/// meaning of `None` is that of [`Kernel::counters`].
fn counters(tree: &Tree) -> Option<Option<String>> {
    let names = tree.names(COUNTERS);
    let own = |name: &&String| *name == "cpu" || name.starts_with("cpu_core") || name.starts_with("armv8_");
    (!names.is_empty()).then(|| names.iter().find(own).map(|name| format!("{COUNTERS}/{name}")))
}

/// Reads the features of the first processor.
fn features(tree: &Tree) -> Fact<Features> {
    let known = tree.listing(CPUINFO).and_then(|text| {
        let (words, value) = flags(&text).ok_or_else(|| Unknown::Missing(format!("'flags' in {CPUINFO}")))?;
        Ok(Known { value, text: words })
    });
    Fact { path: CPUINFO.to_owned(), known }
}

/// Parses the flags of the first processor. Returns the flags that the checks use, as text and as features. Returns
/// `None` if there is no line with flags.
pub(crate) fn flags(text: &str) -> Option<(String, Features)> {
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == "flags"))?;
    let words: Vec<&str> = line.split_once(':')?.1.split_ascii_whitespace().collect();
    let has = |flag: &str| words.contains(&flag);
    let known = ["constant_tsc", "nonstop_tsc", "hypervisor"].into_iter().filter(|flag| has(flag));
    let text = known.collect::<Vec<_>>().join(" ");
    let [constant_tsc, nonstop_tsc, hypervisor] = ["constant_tsc", "nonstop_tsc", "hypervisor"].map(has);
    Some((text, Features { constant_tsc, nonstop_tsc, hypervisor }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_whole_words_of_the_first_processor() {
        let (text, features) =
            flags("processor\t: 0\nflags\t\t: fpu constant_tsc nonstop_tsc_s3\nvmx flags\t: x\n").expect("flags");
        assert_eq!(features, Features { constant_tsc: true, nonstop_tsc: false, hypervisor: false });
        assert_eq!(text, "constant_tsc");
        assert_eq!(flags("Features\t: fp asimd\n"), None);
    }
}
