//! The counters at one instant, by name. So the counters of several workers, and of the consecutive graphs of a worker,
//! can be added.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use forebay_measure::{Away, Counter, Distribution};
use forebay_protocol::{Census, report::SIZE_CLASSES, snapshot::LONG_CLASSES};
use forebay_units::{Frequency, Nanos, Percentile, Rate, Ticks};

use super::difference;
use super::lost::{Losses, lost_lines};
use crate::telemetry::{Account, BACKPRESSURE, MeterAccount, ReasonCounters, Telemetry};

/// The counters at one instant. They are exact between a worker's turns. If another thread reads them, counters of one
/// reading may differ by some packets.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The instant of the reading.
    pub(super) at: Ticks,
    pub(super) pipeline: String,
    pub(super) frequency: Frequency,
    pub(super) census: Census,
    /// Packets by `module.reason`, without reasons that have none.
    pub(super) created: BTreeMap<String, u64>,
    pub(super) dropped: BTreeMap<String, u64>,
    pub(super) consumed: BTreeMap<String, u64>,
    pub(super) modules: Vec<ModuleReading>,
    pub(super) flows: Vec<FlowReading>,
    pub(super) ports: Vec<PortReading>,
    pub(super) workers: Vec<WorkerReading>,
    pub(super) clocks: u64,
    pub(super) exhausted: u64,
    /// Losses of modules and ports that the present graph no longer has.
    pub(super) removed: Losses,
}

/// A meter's counts; zero without a meter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Metered {
    pub(super) instructions: u64,
    pub(super) cycles: u64,
    /// Packets or turns.
    pub(super) times: u64,
}

impl Metered {
    fn of(account: Option<&MeterAccount>) -> Self {
        account.map_or_else(Self::default, |account| Self::times(account, &account.packets))
    }

    fn times(account: &MeterAccount, times: &Counter) -> Self {
        Self { instructions: account.instructions.get(), cycles: account.cycles.get(), times: times.get() }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.instructions = self.instructions.wrapping_add(other.instructions);
        self.cycles = self.cycles.wrapping_add(other.cycles);
        self.times += other.times;
    }
}

/// Times, and meter counts of other turns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timed {
    pub(super) ticks: u64,
    pub(super) packets: u64,
    pub(super) calls: u64,
    pub(super) metered: Metered,
}

impl Timed {
    fn of(account: &Account, metered: Option<&MeterAccount>) -> Self {
        let (ticks, packets, calls) = (account.ticks.get(), account.packets.get(), account.calls.get());
        Self { ticks, packets, calls, metered: Metered::of(metered) }
    }

    pub(super) fn add(&mut self, other: &Self) {
        // With few timed calls the sum may be negative.
        self.ticks = self.ticks.wrapping_add(other.ticks);
        self.packets += other.packets;
        self.calls += other.calls;
        self.metered.add(&other.metered);
    }
}

/// A module's counters.
#[derive(Clone, Debug, Default)]
pub(super) struct ModuleReading {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) workers: Vec<usize>,
    pub(super) packets: u64,
    pub(super) sizes: [u64; SIZE_CLASSES],
    pub(super) timed: Timed,
    /// Packets that came while there was a trigger, and turns in which packets came.
    pub(super) arrived: (u64, u64),
    pub(super) dropped: u64,
    pub(super) trigger: u64,
    pub(super) weight: u64,
    pub(super) hold: u64,
    pub(super) own: BTreeMap<String, BTreeMap<String, u64>>,
    /// The headings of `own` that are gauges, with the addresses of their counters. Gauges are dropped when the graph
    /// is replaced.
    pub(super) gauges: BTreeMap<String, BTreeSet<usize>>,
    /// The module that runs for this one, if it runs folded. Calls and times are those of that module.
    pub(super) folded: Option<String>,
    /// The packets of the whole fold, if this module runs for others.
    pub(super) of_fold: u64,
}

/// A flow's counters, and its objective.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowReading {
    pub(super) name: String,
    pub(super) slo: Option<Nanos>,
    pub(super) percentile: Percentile,
    pub(super) delays: Distribution,
    pub(super) violations: u64,
    pub(super) bytes: u64,
    pub(super) min_rate: Option<Rate>,
    /// Packets that modules on its path turned away, if it has a rate objective.
    turned_away: u64,
    /// Packets that ports lost before they entered its path, by the port's name. A port goes on counting in the next
    /// graph.
    lost: BTreeMap<String, u64>,
}

/// A port's counters.
#[derive(Clone, Debug, Default)]
pub(super) struct PortReading {
    pub(super) name: String,
    pub(super) kind: &'static str,
    /// Received, sent, dropped, refused, errors.
    pub(super) counts: [u64; 5],
    pub(super) skipped: BTreeMap<String, u64>,
    /// The length of the longest frame that did not fit a packet.
    pub(super) longest: u64,
    /// Whether the run ended before the port's last packet.
    pub(super) unread: bool,
    pub(super) receiving: Timed,
    pub(super) sending: Timed,
}

/// A worker's counters.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerReading {
    pub(super) id: usize,
    pub(super) busy: u64,
    pub(super) busy_turns: u64,
    pub(super) timing: u64,
    pub(super) timed_turns: u64,
    pub(super) residue: Timed,
    pub(super) handover: Timed,
    /// Metered turns.
    pub(super) metered: Metered,
    pub(super) metered_residue: Metered,
    /// Whether its meter has failed.
    pub(super) meter_failed: bool,
    pub(super) long: [[u64; LONG_CLASSES]; 4],
    pub(super) all: u64,
    pub(super) turns: u64,
    pub(super) handed: u64,
    pub(super) taken: u64,
    pub(super) stalls: u64,
    /// The time that the machine has taken since the run began.
    pub(super) away: Away,
}

impl Reading {
    /// Reads `telemetry` at the instant `at` of the worker's clock.
    #[must_use]
    pub fn of(telemetry: &Telemetry, at: Ticks) -> Self {
        let named = |of: fn(&crate::telemetry::ModuleTelemetry) -> &ReasonCounters| {
            let modules = telemetry.modules.iter();
            let named = modules.flat_map(|module| of(module).iter().map(move |(name, count)| (module, name, count)));
            counts_by_name(named.map(|(module, name, count)| (format!("{}.{name}", module.name), count)))
        };
        let worker = &telemetry.worker;
        let mut dropped = named(|module| &module.drops);
        let refused = telemetry.ports.iter().map(|port| (format!("{}.refused", port.name), port.refused.get()));
        let turned_away = telemetry.modules.iter();
        let turned_away =
            turned_away.map(|module| (format!("{}.{BACKPRESSURE}", module.name), module.turned_away.get()));
        add(&mut dropped, counts_by_name(turned_away));
        let others =
            [("unwanted", &worker.unwanted), ("no_gate", &worker.no_gate), ("held_at_close", &worker.held_at_close)];
        let others = others.map(|(name, count)| (name.to_owned(), count.get()));
        add(&mut dropped, counts_by_name(refused.chain(others)));
        let ports: Vec<_> = (0..telemetry.ports.len()).map(|port| PortReading::of(telemetry, port)).collect();
        let meter = telemetry.metered.as_ref();
        let metered = |of: fn(&crate::telemetry::Metered) -> &MeterAccount| {
            meter.map_or_else(Metered::default, |metered| Metered::times(of(metered), &metered.turns))
        };
        let mut modules: Vec<_> =
            (0..telemetry.modules.len()).map(|module| ModuleReading::of(telemetry, module)).collect();
        fold(&mut modules, telemetry);
        let mut census = telemetry.census();
        // The same numbers as in `ports`, although packets may have passed between the two readings.
        census.entered = ports.iter().map(|port| port.counts[0]).sum();
        census.left = ports.iter().map(|port| port.counts[1]).sum::<u64>().saturating_sub(census.in_flight);
        Self {
            at,
            pipeline: telemetry.pipeline.clone(),
            frequency: telemetry.frequency,
            census,
            created: named(|module| &module.creates),
            dropped,
            consumed: named(|module| &module.consumes),
            modules,
            flows: (0..telemetry.flows.len()).map(|flow| FlowReading::of(telemetry, flow)).collect(),
            ports,
            workers: vec![WorkerReading {
                id: telemetry.id,
                busy: worker.busy.get(),
                busy_turns: worker.busy_turns.get(),
                timing: worker.timing.get(),
                timed_turns: worker.timed_turns.get(),
                residue: Timed::of(&worker.residue, None),
                handover: Timed::of(&worker.handover, meter.map(|metered| &metered.handover)),
                metered: metered(|metered| &metered.all),
                metered_residue: metered(|metered| &metered.residue),
                meter_failed: meter.is_some_and(|metered| metered.failed.get() > 0),
                long: [&worker.long.turns, &worker.long.busy_turns, &worker.long.ticks, &worker.long.busy]
                    .map(|counters| counters.each_ref().map(Counter::get)),
                all: worker.all.get(),
                turns: worker.turns.get(),
                handed: worker.handed.get(),
                taken: worker.taken.get(),
                stalls: worker.stalls.get(),
                away: Away::default(),
            }],
            clocks: worker.arrival_clocks.get(),
            exhausted: worker.exhausted.get(),
            removed: Losses::default(),
        }
    }

    /// Returns an empty reading, for the time before the run, at the instant `at` of a clock of this `frequency`.
    #[must_use]
    pub fn nothing(frequency: Frequency, at: Ticks) -> Self {
        Self {
            at,
            pipeline: String::new(),
            frequency,
            census: Census::default(),
            created: BTreeMap::new(),
            dropped: BTreeMap::new(),
            consumed: BTreeMap::new(),
            modules: Vec::new(),
            flows: Vec::new(),
            ports: Vec::new(),
            workers: Vec::new(),
            clocks: 0,
            exhausted: 0,
            removed: Losses::default(),
        }
    }

    /// Adds the counts of another worker or of an earlier graph. Items of the same name are added.
    pub fn merge(&mut self, other: &Self) {
        self.at = self.at.max(other.at);
        self.census.add(&other.census);
        for (to, from) in [
            (&mut self.created, &other.created),
            (&mut self.dropped, &other.dropped),
            (&mut self.consumed, &other.consumed),
        ] {
            add(to, from.clone());
        }
        merge(&mut self.modules, &other.modules, |module| module.name.clone(), ModuleReading::add);
        merge(&mut self.flows, &other.flows, |flow| flow.name.clone(), FlowReading::add);
        merge(&mut self.ports, &other.ports, |port| port.name.clone(), PortReading::add);
        merge(&mut self.workers, &other.workers, |worker| worker.id, WorkerReading::add);
        self.workers.sort_by_key(|worker| worker.id);
        self.clocks |= other.clocks;
        self.exhausted += other.exhausted;
        self.removed.add(&other.removed);
    }

    /// Corrects the received and sent packets of ports that have gone on counting in the next graph. `ports` has the
    /// counts at the change.
    pub fn settle(&mut self, ports: &[(String, [u64; 2])]) {
        for (name, [received, sent]) in ports {
            let Some(port) = self.ports.iter_mut().find(|port| port.name == *name) else { continue };
            self.census.entered -= port.counts[0] - received;
            self.census.left -= port.counts[1] - sent;
            (port.counts[0], port.counts[1]) = (*received, *sent);
        }
    }

    /// Turns the reading of a replaced graph into one of the past. The next graph counts what it took over, so this
    /// reading drops it: waiting and held packets, the own counters of the functions and ports for which `kept_module`
    /// and `kept_port` return true, and all gauges.
    pub fn retire(&mut self, kept_module: impl Fn(&str) -> bool, kept_port: impl Fn(&str) -> bool) {
        for module in &mut self.modules {
            if kept_module(&module.name) {
                module.own.clear();
            } else {
                module.own.retain(|heading, _| !module.gauges.contains_key(heading));
            }
        }
        let census = &mut self.census;
        census.left += census.in_flight;
        (census.queued, census.held, census.in_flight) = (0, 0, 0);
        for port in self.ports.iter_mut().filter(|port| kept_port(&port.name)) {
            let refused = port.counts[3];
            census.entered -= port.counts[0];
            census.left -= port.counts[1];
            port.counts = [0, 0, 0, refused, 0];
            port.skipped.clear();
            port.longest = 0;
        }
        self.flows.iter_mut().for_each(|flow| flow.lost.retain(|port, _| !kept_port(port)));
        // A port that was closed by a change was not cut off by the end of the run.
        self.ports.iter_mut().for_each(|port| port.unread = false);
    }

    /// Removes the modules, flows, ports and workers that `present` does not have, and functions' own counters
    /// likewise. It keeps the fates of their packets, the lines that their files lack, and the flows that had missed an
    /// objective. The run began at `began`.
    pub fn keep(&mut self, present: &Self, began: Ticks) {
        self.note_removed(present);
        self.note_removed_flows(present, began);
        let modules: HashMap<_, _> = present.modules.iter().map(|module| (&module.name, &module.own)).collect();
        self.modules.retain_mut(|module| {
            let Some(own) = modules.get(&module.name) else { return false };
            module.own.retain(|heading, rows| {
                let present_rows = own.get(heading);
                rows.retain(|row, _| present_rows.is_some_and(|present_rows| present_rows.contains_key(row)));
                present_rows.is_some()
            });
            true
        });
        keep(&mut self.flows, &present.flows, |flow| &flow.name);
        keep(&mut self.ports, &present.ports, |port| &port.name);
        keep(&mut self.workers, &present.workers, |worker| &worker.id);
    }

    /// Returns the lines that modules' files lack.
    #[must_use]
    pub fn lost_lines(&self) -> Vec<forebay_protocol::report::LostLines> {
        let headings = self.modules.iter().flat_map(|module| module.own.iter().map(move |own| (&module.name, own)));
        headings.filter_map(|(module, (heading, counts))| lost_lines(module, heading, counts)).collect()
    }

    /// Returns all losses: of the present modules and ports, and of the removed ones.
    pub(super) fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        for module in &self.modules {
            module.own.iter().for_each(|(heading, counts)| losses.note_lines(&module.name, heading, counts));
        }
        losses.note_packets(self.ports.iter().map(|port| port.counts[2]).sum());
        losses.add(&self.removed);
        losses
    }

    /// Records the losses of modules and ports that `present` does not have.
    fn note_removed(&mut self, present: &Self) {
        let present_headings: HashSet<_> = present.modules.iter().flat_map(ModuleReading::headings).collect();
        for module in &self.modules {
            for (heading, counts) in
                module.own.iter().filter(|(heading, _)| !present_headings.contains(&(&*module.name, &***heading)))
            {
                self.removed.note_lines(&module.name, heading, counts);
            }
        }
        let present_ports: HashSet<_> = present.ports.iter().map(|port| &port.name).collect();
        let removed = self.ports.iter().filter(|port| !present_ports.contains(&port.name));
        self.removed.note_packets(removed.map(|port| port.counts[2]).sum());
    }

    /// Records the flows that `present` does not have, or has without their objective.
    fn note_removed_flows(&mut self, present: &Self, began: Ticks) {
        let present_flows: HashMap<_, _> = present.flows.iter().map(|flow| (&flow.name, flow)).collect();
        let keeps = |flow: &FlowReading| {
            present_flows.get(&flow.name).is_some_and(|now| {
                flow.slo.is_some() <= now.slo.is_some() && flow.min_rate.is_some() <= now.min_rate.is_some()
            })
        };
        let seconds = self.frequency.seconds(self.at.since(began));
        for flow in self.flows.iter().filter(|flow| !keeps(flow)) {
            let report = difference::flow(FlowReading::default(), flow, seconds, self.frequency);
            self.removed.note_flow(report);
        }
    }

    /// Records the time that the machine has taken from a worker since the run began. The system reports it, not the
    /// worker.
    pub fn note_away(&mut self, worker: usize, away: Away) {
        if let Some(reading) = self.workers.iter_mut().find(|reading| reading.id == worker) {
            reading.away = away;
        }
    }

    /// Returns where every packet is.
    #[must_use]
    pub fn census(&self) -> Census {
        self.census
    }
}

/// Returns counts by name, without zeros.
fn counts_by_name(counts: impl Iterator<Item = (String, u64)>) -> BTreeMap<String, u64> {
    let mut named = BTreeMap::new();
    counts.filter(|(_, count)| *count > 0).for_each(|(name, count)| *named.entry(name).or_insert(0) += count);
    named
}

fn add(to: &mut BTreeMap<String, u64>, from: BTreeMap<String, u64>) {
    from.into_iter().for_each(|(name, count)| *to.entry(name).or_insert(0) += count);
}

/// Adds each item of `from` to the item of `to` with the same key, or appends it.
fn merge<T: Clone, K: Eq + Hash>(to: &mut Vec<T>, from: &[T], key: impl Fn(&T) -> K, add: impl Fn(&mut T, &T)) {
    let indices: HashMap<K, usize> = to.iter().enumerate().map(|(at, item)| (key(item), at)).collect();
    for item in from {
        match indices.get(&key(item)) {
            Some(at) => add(&mut to[*at], item),
            None => to.push(item.clone()),
        }
    }
}

/// Keeps the items of `from` whose keys are in `present`.
fn keep<T, K: Eq + Hash>(from: &mut Vec<T>, present: &[T], key: impl Fn(&T) -> &K) {
    let keys: HashSet<&K> = present.iter().map(&key).collect();
    from.retain(|item| keys.contains(key(item)));
}

/// Computes the packets of modules that run folded.
fn fold(modules: &mut [ModuleReading], telemetry: &Telemetry) {
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
    fn of(telemetry: &Telemetry, module: usize) -> Self {
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
    fn headings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.own.keys().map(|heading| (&*self.name, &**heading))
    }

    fn add(&mut self, other: &Self) {
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
                // Replicas share gauges and each shows them. They count once.
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
    fn of(telemetry: &Telemetry, flow: usize) -> Self {
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

    /// Returns the packets that were turned away on its path, or lost before they entered it.
    pub(super) fn turned_away(&self) -> u64 {
        self.turned_away + self.lost.values().sum::<u64>()
    }

    fn add(&mut self, other: &Self) {
        self.delays.merge(&other.delays);
        // A port that refuses packets subtracts the packets that were counted as sent.
        self.violations = self.violations.wrapping_add(other.violations);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.turned_away += other.turned_away;
        add(&mut self.lost, other.lost.clone());
    }
}

impl PortReading {
    fn of(telemetry: &Telemetry, port: usize) -> Self {
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

    fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        add(&mut self.skipped, other.skipped.clone());
        self.longest = self.longest.max(other.longest);
        self.unread |= other.unread;
        self.receiving.add(&other.receiving);
        self.sending.add(&other.sending);
    }
}

impl WorkerReading {
    fn add(&mut self, other: &Self) {
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

#[cfg(test)]
mod tests;
