//! The counters of a module, a flow, a port and a worker at one instant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_measure::{Away, Counter, Distribution};
use forebay_protocol::{report::SIZE_CLASSES, snapshot::LONG_CLASSES};
use forebay_units::{Nanos, Percentile, Rate};

use crate::telemetry::{Account, MeterAccount, Telemetry};

/// A meter's counts. All are 0 without a meter.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::report) struct Metered {
    pub(in crate::report) instructions: u64,
    pub(in crate::report) cycles: u64,
    /// The number of packets or turns to which the counts belong.
    pub(in crate::report) times: u64,
}

impl Metered {
    /// Reads counts per packet.
    pub(super) fn of(account: Option<&MeterAccount>) -> Self {
        account.map_or_else(Self::default, |account| Self::times(account, &account.packets))
    }

    /// Reads counts per unit of `times`, for example per turn.
    pub(super) fn times(account: &MeterAccount, times: &Counter) -> Self {
        Self { instructions: account.instructions.get(), cycles: account.cycles.get(), times: times.get() }
    }

    pub(in crate::report) fn add(&mut self, other: &Self) {
        self.instructions = self.instructions.wrapping_add(other.instructions);
        self.cycles = self.cycles.wrapping_add(other.cycles);
        self.times += other.times;
    }
}

/// The times of timed calls ([`Account`]), and a meter's counts. The counts are from other turns than the times.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::report) struct Timed {
    /// A sum that wraps, because it may be negative.
    pub(in crate::report) ticks: u64,
    pub(in crate::report) packets: u64,
    pub(in crate::report) calls: u64,
    pub(in crate::report) metered: Metered,
}

impl Timed {
    pub(super) fn of(account: &Account, metered: Option<&MeterAccount>) -> Self {
        let (ticks, packets, calls) = (account.ticks.get(), account.packets.get(), account.calls.get());
        Self { ticks, packets, calls, metered: Metered::of(metered) }
    }

    pub(in crate::report) fn add(&mut self, other: &Self) {
        // The sum wraps, because with few timed calls it may be negative.
        self.ticks = self.ticks.wrapping_add(other.ticks);
        self.packets += other.packets;
        self.calls += other.calls;
        self.metered.add(&other.metered);
    }
}

/// A module's counters.
#[derive(Clone, Debug, Default)]
pub(in crate::report) struct ModuleReading {
    pub(in crate::report) name: String,
    /// The name of its function.
    pub(in crate::report) kind: &'static str,
    /// The workers that run it.
    pub(in crate::report) workers: Vec<usize>,
    /// The packets processed.
    pub(in crate::report) packets: u64,
    /// The calls, by batch size ([`size_class`](crate::telemetry::size_class)).
    pub(in crate::report) sizes: [u64; SIZE_CLASSES],
    pub(in crate::report) timed: Timed,
    /// The packets that came while there was a trigger, and the number of turns in which they came.
    pub(in crate::report) arrived: (u64, u64),
    /// The packets that the module's function dropped, and the packets for the module that were turned away.
    pub(in crate::report) dropped: u64,
    /// The present trigger. 0 if there is none.
    pub(in crate::report) trigger: u64,
    /// The present weight. 0 if the scheduler does not share time.
    pub(in crate::report) weight: u64,
    /// The hold limit, in ticks.
    pub(in crate::report) hold: u64,
    /// The function's own counters, by heading and name.
    pub(in crate::report) own: BTreeMap<String, BTreeMap<String, u64>>,
    /// The headings of `own` that are gauges, with the addresses of their counters. Replicas of a module share gauges:
    /// equal addresses are the same gauge, which is added only once. Gauges are dropped when the graph is replaced.
    pub(in crate::report) gauges: BTreeMap<String, BTreeSet<usize>>,
    /// The module that runs for this one, if this module runs folded. Calls and times are those of the module that
    /// runs.
    pub(in crate::report) folded: Option<String>,
    /// The packets of the whole fold, if this module runs for the modules of a fold. Otherwise 0.
    pub(in crate::report) of_fold: u64,
}

/// A flow's counters, and its objective.
#[derive(Clone, Debug, Default)]
pub(in crate::report) struct FlowReading {
    pub(in crate::report) name: String,
    pub(in crate::report) slo: Option<Nanos>,
    pub(in crate::report) percentile: Percentile,
    /// The delays of the packets that left, in ticks.
    pub(in crate::report) delays: Distribution,
    /// The packets whose delay was above the objective.
    pub(in crate::report) violations: u64,
    /// The bytes of the packets that left. 0 if no flow's rate objective is in bits.
    pub(in crate::report) bytes: u64,
    pub(in crate::report) min_rate: Option<Rate>,
    /// The packets that modules on the flow's path turned away. 0 if the flow has no rate objective.
    pub(super) turned_away: u64,
    /// By the name of a port whose packets enter on the flow's path: the packets that the port lost before they
    /// entered. Empty if the flow has no rate objective. A port that is taken over continues its count in the next
    /// graph.
    pub(super) lost: BTreeMap<String, u64>,
}

/// A port's counters.
#[derive(Clone, Debug, Default)]
pub(in crate::report) struct PortReading {
    pub(in crate::report) name: String,
    pub(in crate::report) kind: &'static str,
    /// Received, sent, dropped, refused, errors.
    pub(in crate::report) counts: [u64; 5],
    /// The dropped packets for which the port gives reasons, by reason.
    pub(in crate::report) skipped: BTreeMap<String, u64>,
    /// The length of the longest frame that did not fit a packet, in bytes. 0 if there was none, or if the length is
    /// unknown.
    pub(in crate::report) longest: u64,
    /// Whether the run ended before the port's last packet.
    pub(in crate::report) unread: bool,
    pub(in crate::report) receiving: Timed,
    pub(in crate::report) sending: Timed,
}

/// A worker's counters ([`WorkerCounters`](crate::telemetry::WorkerCounters)).
#[derive(Clone, Debug, Default)]
pub(in crate::report) struct WorkerReading {
    pub(in crate::report) id: usize,
    pub(in crate::report) busy: u64,
    pub(in crate::report) busy_turns: u64,
    pub(in crate::report) timing: u64,
    pub(in crate::report) timed_turns: u64,
    pub(in crate::report) residue: Timed,
    pub(in crate::report) handover: Timed,
    /// The meter's counts of whole turns, per turn.
    pub(in crate::report) metered: Metered,
    pub(in crate::report) metered_residue: Metered,
    /// Whether the worker's meter has failed.
    pub(in crate::report) meter_failed: bool,
    /// Four arrays by class: the number of long turns, the number of busy long turns, the ticks of long turns, and the
    /// ticks of busy long turns.
    pub(in crate::report) long: [[u64; LONG_CLASSES]; 4],
    pub(in crate::report) all: u64,
    pub(in crate::report) turns: u64,
    pub(in crate::report) handed: u64,
    pub(in crate::report) taken: u64,
    pub(in crate::report) stalls: u64,
    /// The time that the machine has taken since the run began.
    pub(in crate::report) away: Away,
}

/// Sets the packets of each folded module. The first module of a fold has counted the packets of all modules of the
/// fold.
pub(super) fn fold(modules: &mut [ModuleReading], telemetry: &Telemetry) {
    let folds = &telemetry.folds;
    let packets = folds.packets(|module| modules[module].dropped);
    for (members, packets) in folds.members.iter().zip(packets) {
        let leader = modules[members[0]].name.clone();
        modules[members[0]].of_fold = modules[members[0]].packets;
        for (&member, packets) in members.iter().zip(packets) {
            (modules[member].packets, modules[member].folded) = (packets, Some(leader.clone()));
        }
    }
}

impl ModuleReading {
    pub(super) fn of(telemetry: &Telemetry, module: usize) -> Self {
        let (counters, module_telemetry) = (&telemetry.counters[module], &telemetry.modules[module]);
        let mut sizes = [0; SIZE_CLASSES];
        sizes.iter_mut().zip(&counters.sizes).for_each(|(size, count)| *size = count.get());
        let mut own: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        let mut gauges: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for own_counters in &module_telemetry.own {
            let of_heading = own.entry(own_counters.heading.clone()).or_default();
            for (name, count) in own_counters.names.iter().zip(own_counters.counters.iter()) {
                *of_heading.entry(name.clone()).or_insert(0) += count.get();
            }
            if own_counters.gauges {
                let address = Arc::as_ptr(&own_counters.counters).cast::<()>().addr();
                gauges.entry(own_counters.heading.clone()).or_default().insert(address);
            }
        }
        Self {
            name: module_telemetry.name.clone(),
            kind: module_telemetry.kind,
            workers: if module_telemetry.here { vec![telemetry.id] } else { Vec::new() },
            packets: counters.packets.get(),
            sizes,
            timed: Timed::of(&counters.timed, telemetry.metered.as_ref().map(|metered| &metered.modules[module])),
            arrived: (counters.arrived.get(), counters.arrivals.get()),
            dropped: module_telemetry.drops.total() + module_telemetry.turned_away.get(),
            trigger: counters.trigger.get(),
            weight: counters.weight.get(),
            hold: counters.hold.get(),
            own,
            gauges,
            folded: None,
            of_fold: 0,
        }
    }

    /// Returns the module's name with each heading of its own counters.
    pub(super) fn headings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.own.keys().map(|heading| (&*self.name, &**heading))
    }

    /// Adds the counts of the same module on another worker, or in an earlier graph. The description and the settings
    /// remain those of `self`.
    pub(super) fn add(&mut self, other: &Self) {
        if self.of_fold + other.of_fold > 0 {
            // One of the two graphs may have run the module unfolded.
            let all = |reading: &Self| if reading.of_fold > 0 { reading.of_fold } else { reading.packets };
            self.of_fold = all(self) + all(other);
        }
        self.packets += other.packets;
        self.sizes.iter_mut().zip(other.sizes).for_each(|(size, more)| *size += more);
        self.timed.add(&other.timed);
        self.arrived = (self.arrived.0 + other.arrived.0, self.arrived.1 + other.arrived.1);
        self.dropped += other.dropped;
        for (heading, counts) in &other.own {
            if let Some(theirs) = other.gauges.get(heading) {
                let ours = self.gauges.entry(heading.clone()).or_default();
                // Each replica reports the gauges that all replicas share. They count once.
                if theirs.is_subset(ours) {
                    continue;
                }
                ours.extend(theirs);
            }
            let of_heading = self.own.entry(heading.clone()).or_default();
            counts.iter().for_each(|(name, count)| *of_heading.entry(name.clone()).or_insert(0) += count);
        }
        self.workers.extend(other.workers.iter().filter(|id| !self.workers.contains(id)).copied().collect::<Vec<_>>());
    }
}

impl FlowReading {
    pub(super) fn of(telemetry: &Telemetry, flow: usize) -> Self {
        let flow_telemetry = &telemetry.flows[flow];
        let ways = || telemetry.ways.iter().filter(|way| way.flow == flow);
        let lost = counts_by_name(ways().flat_map(|way| way.lost(telemetry)));
        Self {
            name: flow_telemetry.plan.name.clone(),
            slo: flow_telemetry.plan.slo,
            percentile: flow_telemetry.plan.percentile,
            delays: flow_telemetry.delay.read(),
            violations: flow_telemetry.violations.get(),
            bytes: flow_telemetry.bytes.get(),
            min_rate: flow_telemetry.plan.min_rate,
            turned_away: ways().map(|way| way.turned_away(telemetry)).sum(),
            lost,
        }
    }

    /// Returns the number of packets that were turned away on the flow's path, or lost before they entered the path.
    pub(in crate::report) fn turned_away(&self) -> u64 {
        self.turned_away + self.lost.values().sum::<u64>()
    }

    /// Adds the counts of the same flow on another worker, or in an earlier graph. The objectives remain those of
    /// `self`.
    pub(super) fn add(&mut self, other: &Self) {
        self.delays.merge(&other.delays);
        // The sums wrap, because the packets that a port refuses are subtracted again after they were counted as sent.
        self.violations = self.violations.wrapping_add(other.violations);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.turned_away += other.turned_away;
        add(&mut self.lost, other.lost.clone());
    }
}

impl PortReading {
    pub(super) fn of(telemetry: &Telemetry, port: usize) -> Self {
        let port_telemetry = &telemetry.ports[port];
        let metered = |way: usize| telemetry.metered.as_ref().map(|all| &all.ports[port][way]);
        let own = &port_telemetry.counters;
        let counts = [&own.received, &own.sent, &own.dropped, &port_telemetry.refused, &own.errors].map(Counter::get);
        let (receiving, sending) =
            (Timed::of(&port_telemetry.receiving, metered(0)), Timed::of(&port_telemetry.sending, metered(1)));
        let (skipped, longest, unread) = (own.by_reason(), own.longest.get(), port_telemetry.unread.get() > 0);
        Self {
            name: port_telemetry.name.clone(),
            kind: port_telemetry.kind,
            counts,
            skipped,
            longest,
            unread,
            receiving,
            sending,
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        add(&mut self.skipped, other.skipped.clone());
        self.longest = self.longest.max(other.longest);
        self.unread |= other.unread;
        self.receiving.add(&other.receiving);
        self.sending.add(&other.sending);
    }
}

impl WorkerReading {
    pub(super) fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.busy, other.busy),
            (&mut self.busy_turns, other.busy_turns),
            (&mut self.timed_turns, other.timed_turns),
            (&mut self.all, other.all),
            (&mut self.turns, other.turns),
            (&mut self.handed, other.handed),
            (&mut self.taken, other.taken),
            (&mut self.stalls, other.stalls),
        ];
        pairs.into_iter().for_each(|(count, more)| *count += more);
        self.timing = self.timing.wrapping_add(other.timing);
        self.residue.add(&other.residue);
        self.handover.add(&other.handover);
        self.metered.add(&other.metered);
        self.metered_residue.add(&other.metered_residue);
        self.meter_failed |= other.meter_failed;
        self.long.iter_mut().flatten().zip(other.long.iter().flatten()).for_each(|(count, more)| *count += more);
    }
}

/// Returns counts by name, without zeros.
pub(super) fn counts_by_name(counts: impl Iterator<Item = (String, u64)>) -> BTreeMap<String, u64> {
    let mut named = BTreeMap::new();
    counts.filter(|(_, count)| *count > 0).for_each(|(name, count)| *named.entry(name).or_insert(0) += count);
    named
}

/// Adds counts by name.
pub(super) fn add(to: &mut BTreeMap<String, u64>, from: BTreeMap<String, u64>) {
    from.into_iter().for_each(|(name, count)| *to.entry(name).or_insert(0) += count);
}
