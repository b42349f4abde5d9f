//! How the kernel was started and is set: isolated CPUs, its clock, who may count events.

use crate::cpu::{FOLDER, flag, name};
use crate::fact::{Fact, Known};
use crate::list::KernelList;
use crate::tree::{Tree, Unknown};

/// Where the processor describes itself.
pub const CPUINFO: &str = "/proc/cpuinfo";
/// Where counters of events are.
pub const COUNTERS: &str = "/sys/bus/event_source/devices";
const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0";

/// The kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// What it was started with.
    pub command_line: Fact<String>,
    /// CPUs that the scheduler leaves alone (`isolcpus`).
    pub isolated: Fact<KernelList>,
    /// CPUs without a periodic tick (`nohz_full`).
    pub tickless: Fact<KernelList>,
    /// The clock that it takes the time from.
    pub clock: Fact<String>,
    /// Those that it could take it from.
    pub clocks: Fact<Vec<String>>,
    /// Who may count events: below 3, each program its own.
    pub paranoid: Fact<i64>,
    /// The processor's own counters, by the folder that they have; `None`: nothing says what there is.
    pub counters: Option<Option<String>>,
    /// Whether it moves memory between nodes by itself.
    pub numa_balancing: Fact<bool>,
    /// What the processor can do, by its own words.
    pub features: Fact<Features>,
}

/// What the processor says of itself, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// The time-stamp counter has one rate.
    pub constant_tsc: bool,
    /// It goes on in every idle state.
    pub nonstop_tsc: bool,
    /// This is a virtual machine.
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

    /// Whether this is a virtual machine, where the processor says so.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.features.value().is_some_and(|features| features.hypervisor)
    }
}

/// The folder of the processor's counters: `cpu`, of unlike cores `cpu_core`, of ARM `armv8_…`.
fn counters(tree: &Tree) -> Option<Option<String>> {
    let names = tree.names(COUNTERS);
    let own = |name: &&String| *name == "cpu" || name.starts_with("cpu_core") || name.starts_with("armv8_");
    (!names.is_empty()).then(|| names.iter().find(own).map(|name| format!("{COUNTERS}/{name}")))
}

fn features(tree: &Tree) -> Fact<Features> {
    let known = tree.listing(CPUINFO).and_then(|text| {
        let (words, value) = flags(&text).ok_or_else(|| Unknown::Missing(format!("'flags' in {CPUINFO}")))?;
        Ok(Known { value, text: words })
    });
    Fact { path: CPUINFO.to_owned(), known }
}

/// The first processor's flags, and those of them that matter here, as they stand there.
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
