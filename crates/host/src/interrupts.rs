//! Device interrupts: the rates at which CPUs receive them, and the CPUs that may receive them (`/proc/interrupts`,
//! `/proc/irq`; `proc_interrupts(5)`).

use std::time::Duration;

use crate::fact::Fact;
use crate::list::KernelList;
use crate::stat::Over;
use crate::tree::{Tree, Unknown, senseless};

/// The file with the counts.
pub const FILE: &str = "/proc/interrupts";
/// The largest number of interrupts that are read. Machines have some thousands.
const MOST: usize = 16_384;

/// An interrupt of a device.
#[derive(Clone, Debug)]
pub struct Interrupt {
    /// The interrupt's number.
    pub number: u32,
    /// The names of its controller and its devices.
    pub label: String,
    /// The number of occurrences at each CPU since the system's start, without zeros.
    pub counts: Vec<(usize, u64)>,
    /// The CPUs that may receive the interrupt.
    pub allowed: Fact<KernelList>,
    /// The CPUs that receive the interrupt, a subset of `allowed`. Empty if the interrupt was never requested.
    pub effective: Fact<KernelList>,
    /// The rate per second at each CPU, without zeros, and the period of the rates. `None` if there was no later
    /// reading.
    pub rates: Option<(Vec<(usize, f64)>, Over)>,
    /// The time over which the interrupt has been counted, in seconds. `None` if it is unknown.
    pub counted_s: Option<f64>,
}

/// Returns the folder of an interrupt.
#[must_use]
pub fn folder(number: u32) -> String {
    format!("/proc/irq/{number}")
}

impl Interrupt {
    /// Returns the CPUs that receive the interrupt. If the kernel does not report them, returns the CPUs that may
    /// receive it.
    #[must_use]
    pub fn target(&self) -> &Fact<KernelList> {
        match self.effective.value() {
            // An interrupt that was never requested has an empty list.
            Some(list) if !list.is_empty() => &self.effective,
            _ => &self.allowed,
        }
    }

    /// Returns the interrupt's rate per second at the CPUs for which `on` returns true. If the interrupt has not
    /// occurred there between the two readings, the rate is the average since the system's start. Returns `None` if no
    /// rate is known.
    #[must_use]
    pub fn rate(&self, on: impl Fn(usize) -> bool) -> Option<(f64, Over)> {
        if let Some((rates, over)) = &self.rates {
            let now = rates.iter().filter(|(cpu, _)| on(*cpu)).map(|(_, rate)| rate).sum::<f64>();
            if now > 0.0 {
                return Some((now, *over));
            }
        }
        let all =
            self.counts.iter().filter(|(cpu, _)| on(*cpu)).fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
        self.counted_s.map(|seconds| (all as f64 / seconds, Over::Start))
    }

    /// Computes the rates from a later reading, `span` after the first reading. Without a later reading, only averages
    /// since the system's start are available.
    pub(crate) fn observe(&mut self, later: Option<&Counted>, span: Duration, uptime_s: Option<f64>) {
        self.counted_s = uptime_s.filter(|seconds| *seconds > 0.0);
        let seconds = span.as_secs_f64();
        let Some(later) = later.filter(|_| seconds > 0.0) else { return };
        let before = |cpu: usize| self.counts.iter().find(|(number, _)| *number == cpu).map_or(0, |(_, count)| *count);
        let rates = later.counts.iter().map(|(cpu, count)| (*cpu, count.saturating_sub(before(*cpu)) as f64 / seconds));
        self.rates = Some((rates.filter(|(_, rate)| *rate > 0.0).collect(), Over::Span(span)));
    }
}

/// A line of the kernel's list of interrupts. The fields are those of [`Interrupt`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) number: u32,
    pub(crate) counts: Vec<(usize, u64)>,
    pub(crate) label: String,
}

/// Reads all device interrupts.
pub(crate) fn read(tree: &Tree) -> Result<Vec<Interrupt>, Unknown> {
    let counted = counted(tree)?.into_iter().map(|Counted { number, counts, label }| {
        let list =
            |file: &str| tree.fact(&format!("{}/{file}", folder(number)), "a list of CPUs", |text| text.parse().ok());
        let (allowed, effective) = (list("smp_affinity_list"), list("effective_affinity_list"));
        Interrupt { number, label, counts, allowed, effective, rates: None, counted_s: None }
    });
    Ok(counted.collect())
}

/// Reads the kernel's list of interrupts.
pub(crate) fn counted(tree: &Tree) -> Result<Vec<Counted>, Unknown> {
    let text = tree.listing(FILE)?;
    parse(&text).ok_or_else(|| senseless(FILE, &text, "a heading of CPUs, then a line for each interrupt"))
}

/// Parses the kernel's list. The interrupts of the processors themselves (`LOC`, `TLB`, …) are skipped. Returns `None`
/// if the heading is invalid.
pub(crate) fn parse(text: &str) -> Option<Vec<Counted>> {
    let mut lines = text.lines();
    let heading = lines.next()?.split_ascii_whitespace();
    let cpus: Vec<usize> = heading.map(|word| word.strip_prefix("CPU")?.parse().ok()).collect::<Option<_>>()?;
    let counted = lines.filter_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse().ok()?;
        let mut words = rest.split_ascii_whitespace().peekable();
        let mut counts = Vec::new();
        for cpu in &cpus {
            let Some(count) = words.peek().and_then(|word| word.parse().ok()) else { break };
            counts.push((*cpu, count));
            words.next();
        }
        // Most counts are 0. They are removed, because a missing count also means 0.
        counts.retain(|(_, count)| *count > 0);
        Some(Counted { number, counts, label: words.collect::<Vec<_>>().join(" ") })
    });
    (!cpus.is_empty()).then(|| counted.take(MOST).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
           CPU0       CPU2
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
 36:          0    1744277 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
NMI:          0          0   Non-maskable interrupts
ERR:          0
";

    #[test]
    fn devices_interrupts_are_read_by_cpu() {
        let read = parse(LISTING).expect("a listing");
        assert_eq!(read.len(), 2);
        assert_eq!((read[1].number, &read[1].counts), (36, &vec![(2, 1_744_277)]));
        assert_eq!(read[1].label, "PCI-MSIX-0000:00:02.0 1-edge virtio1-req.0");
        assert_eq!([parse(""), parse("24: 1"), parse("\n")], [None, None, None]);
    }

    #[test]
    fn rates_cover_a_span_or_the_time_since_the_start() {
        let later = parse(LISTING).expect("a listing").remove(1);
        let unknown = |path: &str| Fact::unknown(path, Unknown::Missing(path.to_owned()));
        let mut interrupt = Interrupt {
            number: 36,
            label: String::new(),
            counts: vec![(2, 1_744_177)],
            allowed: unknown("a"),
            effective: unknown("b"),
            rates: None,
            counted_s: None,
        };
        assert_eq!(interrupt.rate(|_| true), None);
        let span = Duration::from_millis(500);
        interrupt.observe(Some(&later), span, Some(1_744_177.0));
        assert_eq!(interrupt.rate(|cpu| cpu == 2), Some((200.0, Over::Span(span))));
        assert_eq!(interrupt.rate(|cpu| cpu == 0), Some((0.0, Over::Start)));
        interrupt.rates = None;
        interrupt.observe(None, span, Some(1_744_177.0));
        assert_eq!(interrupt.rate(|cpu| cpu == 2), Some((1.0, Over::Start)));
        interrupt.observe(None, span, Some(0.0));
        assert_eq!(interrupt.rate(|_| true), None);
    }
}
