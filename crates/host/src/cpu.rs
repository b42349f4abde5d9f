//! CPUs: their physical cores, frequencies and idle states.

use crate::fact::Fact;
use crate::list::KernelList;
use crate::stat::Load;
use crate::tree::Tree;

/// The kernel's folder of CPUs.
pub const FOLDER: &str = "/sys/devices/system/cpu";
/// The largest number of idle states that are read. Drivers have fewer (`CPUIDLE_STATE_MAX` is 10).
const MOST_STATES: usize = 16;

/// A CPU: a hardware thread, which Forebay calls a core.
#[derive(Clone, Debug)]
pub struct Cpu {
    /// The CPU's number.
    pub number: usize,
    /// The CPU's NUMA node. `None` if it is unknown.
    pub node: Option<usize>,
    /// The CPUs of the same physical core, including this CPU.
    pub threads: Fact<KernelList>,
    /// The CPU's frequency.
    pub frequency: Frequency,
    /// The CPU's idle states, the shallowest first. Empty if the kernel has no driver for them.
    pub idle: Vec<IdleState>,
    /// The longest allowed wake-up time in microseconds. `None` if there is no limit.
    pub wake_limit_us: Fact<Option<u64>>,
    /// The shares of the CPU's time that were busy and stolen. `None` if they were not measured
    /// ([`Host::load_unknown`](crate::Host::load_unknown)).
    pub load: Option<Load>,
}

/// A CPU's frequency.
#[derive(Clone, Debug)]
pub struct Frequency {
    /// The driver that sets the frequency.
    pub driver: Fact<String>,
    /// The rule (governor) by which the driver sets the frequency.
    pub governor: Fact<String>,
    /// The highest frequency that the rule may set, in kHz.
    pub most_khz: Fact<u64>,
    /// The highest frequency of the hardware, in kHz.
    pub hardware_most_khz: Fact<u64>,
}

/// An idle state (Linux `Documentation/admin-guide/pm/cpuidle.rst`).
#[derive(Clone, Debug)]
pub struct IdleState {
    /// The state's name.
    pub name: Fact<String>,
    /// The time to leave the state, in microseconds.
    pub latency_us: Fact<u64>,
    /// True if the state is never entered.
    pub disabled: Fact<bool>,
}

impl Cpu {
    /// Reads the facts about a CPU, except its load.
    pub(crate) fn read(tree: &Tree, number: usize, node: Option<usize>) -> Self {
        let path = |file: &str| format!("{FOLDER}/cpu{number}/{file}");
        let frequency = Frequency {
            driver: name(tree, &path("cpufreq/scaling_driver")),
            governor: name(tree, &path("cpufreq/scaling_governor")),
            most_khz: tree.fact(&path("cpufreq/scaling_max_freq"), "a number of kHz", |text| text.parse().ok()),
            hardware_most_khz: tree
                .fact(&path("cpufreq/cpuinfo_max_freq"), "a number of kHz", |text| text.parse().ok()),
        };
        let states = (0..MOST_STATES).map(|state| path(&format!("cpuidle/state{state}")));
        let idle = states.take_while(|state| tree.has(state)).map(|state| IdleState {
            name: words(tree, &format!("{state}/name")),
            latency_us: tree.fact(&format!("{state}/latency"), "a number of microseconds", |text| text.parse().ok()),
            disabled: tree.fact(&format!("{state}/disable"), "0 or 1", flag),
        });
        Self {
            number,
            node,
            threads: tree.fact(&path("topology/thread_siblings_list"), "a list of CPUs", |text| text.parse().ok()),
            frequency,
            idle: idle.collect(),
            wake_limit_us: tree.fact(&path("power/pm_qos_resume_latency_us"), "a number of microseconds or n/a", limit),
            load: None,
        }
    }
}

/// Reads a name that the kernel gives to a driver, a governor or a clock.
pub(crate) fn name(tree: &Tree, path: &str) -> Fact<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let is_name = |text: &str| text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(fits);
    tree.fact(path, "a name", |text| is_name(text).then(|| text.to_owned()))
}

/// Reads a file of printable words.
pub(crate) fn words(tree: &Tree, path: &str) -> Fact<String> {
    let fits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    tree.fact(path, "words", |text| fits(text).then(|| text.to_owned()))
}

/// Parses a switch of the kernel. 0 means off, and all other values mean on, because the file `disable` of an idle
/// state counts the requests to disable the state.
pub(crate) fn flag(text: &str) -> Option<bool> {
    text.parse::<u64>().ok().map(|number| number > 0)
}

/// Parses a limit of the wake-up time. `0` means no limit, and `n/a` means that waking up may take no time (Linux
/// `Documentation/ABI/testing/sysfs-devices-power`).
fn limit(text: &str) -> Option<Option<u64>> {
    match text {
        "n/a" => Some(Some(0)),
        "0" => Some(None),
        text => text.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_and_limits_are_the_kernels() {
        assert_eq!(["0", "1", "2", "", "-1"].map(flag), [Some(false), Some(true), Some(true), None, None]);
        assert_eq!(["0", "n/a", "20", "x"].map(limit), [Some(None), Some(Some(0)), Some(Some(20)), None]);
    }
}
