//! Device interrupts: how often each CPU gets them, and which may (`/proc/interrupts`, `/proc/irq`; `proc_interrupts(5)`).

use std::collections::HashMap;
use std::time::Duration;

use crate::fact::Fact;
use crate::list::KernelList;
use crate::stat::Over;
use crate::tree::{Tree, Unknown, senseless};

/// Where they are counted.
pub const FILE: &str = "/proc/interrupts";
/// The most interrupts that are looked at: machines have some thousands.
const MOST: usize = 16_384;

/// An interrupt of a device.
#[derive(Clone, Debug)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// Its controller and the devices that it is of.
    pub label: String,
    /// By CPU: how often it has come.
    pub counts: Vec<(usize, u64)>,
    /// The CPUs that it may be sent to.
    pub allowed: Fact<KernelList>,
    /// Those of them that it is sent to.
    pub effective: Fact<KernelList>,
    /// By CPU, how often a second, where that is not 0; nothing where it cannot be told.
    pub rates: Option<(Vec<(usize, f64)>, Over)>,
}

/// The files of an interrupt.
#[must_use]
pub fn folder(number: u32) -> String {
    format!("/proc/irq/{number}")
}

impl Interrupt {
    /// Where it is sent: what the kernel says of that, or where it may be sent.
    #[must_use]
    pub fn target(&self) -> &Fact<KernelList> {
        match self.effective.value() {
            // What was never requested is sent nowhere.
            Some(list) if !list.is_empty() => &self.effective,
            _ => &self.allowed,
        }
    }

    /// How often a second it comes to a CPU.
    #[must_use]
    pub fn rate(&self, cpu: usize) -> Option<(f64, Over)> {
        let (rates, over) = self.rates.as_ref()?;
        let rate = rates.iter().find(|(number, _)| *number == cpu).map_or(0.0, |(_, rate)| *rate);
        Some((rate, *over))
    }

    /// How often it has come to any CPU.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Takes its rates from a later reading: over `span`, or where nothing has come in it, since the start, `uptime` ago, if the
    /// counts do not advance at all (`live` is false).
    pub(crate) fn observe(&mut self, later: &Counted, span: Duration, live: bool, uptime: Option<f64>) {
        let earlier: HashMap<usize, u64> = self.counts.iter().copied().collect();
        let (seconds, over) = if live { (Some(span.as_secs_f64()), Over::Span(span)) } else { (uptime, Over::Start) };
        let Some(seconds) = seconds.filter(|seconds| *seconds > 0.0) else { return };
        let before = |cpu: usize| if live { earlier.get(&cpu).copied().unwrap_or(0) } else { 0 };
        let rates = later.counts.iter().map(|(cpu, count)| (*cpu, count.saturating_sub(before(*cpu)) as f64 / seconds));
        self.rates = Some((rates.filter(|(_, rate)| *rate > 0.0).collect(), over));
    }
}

/// A line of the listing.
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
        Interrupt { number, label, counts, allowed, effective, rates: None }
    });
    Ok(counted.collect())
}

/// Reads the listing.
pub(crate) fn counted(tree: &Tree) -> Result<Vec<Counted>, Unknown> {
    let text = tree.listing(FILE)?;
    parse(&text).ok_or_else(|| senseless(FILE, &text, "a heading of CPUs, then a line for each interrupt"))
}

/// Device interrupts; the processor's own (`LOC`, `TLB`, …) are passed over.
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
        // Zeros are most of it, and say no more than their absence.
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
    fn rates_are_of_a_while_or_since_the_start() {
        let later = parse(LISTING).expect("a listing").remove(1);
        let unknown = |path: &str| Fact::unknown(path, Unknown::Missing(path.to_owned()));
        let mut interrupt = Interrupt {
            number: 36,
            label: String::new(),
            counts: vec![(2, 1_744_177)],
            allowed: unknown("a"),
            effective: unknown("b"),
            rates: None,
        };
        assert_eq!(interrupt.rate(2), None);
        interrupt.observe(&later, Duration::from_millis(500), true, None);
        assert_eq!(interrupt.rate(2), Some((200.0, Over::Span(Duration::from_millis(500)))));
        assert_eq!(interrupt.rate(0).map(|(rate, _)| rate), Some(0.0));
        interrupt.observe(&later, Duration::from_millis(500), false, Some(1_744_277.0));
        assert_eq!(interrupt.rate(2), Some((1.0, Over::Start)));
    }
}
