//! The counters at one instant, by name. So the counters of several workers, and of the consecutive graphs of a worker,
//! can be added.

mod parts;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use forebay_measure::{Away, Counter};
use forebay_protocol::Census;
use forebay_units::{Frequency, Ticks};

pub(super) use self::parts::{FlowReading, Metered, ModuleReading, PortReading, Timed, WorkerReading};
use self::parts::{add, counts_by_name, fold};
use super::difference;
use super::lost::{Losses, lost_lines};
use crate::telemetry::{BACKPRESSURE, MeterAccount, ReasonCounters, Telemetry};

/// The counters at one instant. They are exact between a worker's turns. If another thread reads them during a turn,
/// they may disagree with each other by some packets.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The instant of the reading.
    pub(super) at: Ticks,
    pub(super) pipeline: String,
    pub(super) frequency: Frequency,
    pub(super) census: Census,
    /// The created packets by `module.reason`, without reasons that have no packets.
    pub(super) created: BTreeMap<String, u64>,
    /// The dropped packets in the same form. There are also `port.refused`, `unwanted`, `no_gate` and `held_at_close`.
    pub(super) dropped: BTreeMap<String, u64>,
    /// The consumed packets in the same form.
    pub(super) consumed: BTreeMap<String, u64>,
    pub(super) modules: Vec<ModuleReading>,
    pub(super) flows: Vec<FlowReading>,
    pub(super) ports: Vec<PortReading>,
    pub(super) workers: Vec<WorkerReading>,
    /// The arrival clocks, as a bit set ([`WorkerCounters`](crate::telemetry::WorkerCounters)).
    pub(super) clocks: u64,
    /// The packets that the pool could not provide.
    pub(super) exhausted: u64,
    /// Losses of modules and ports that the present graph no longer has.
    pub(super) removed: Losses,
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
        // The sums are taken from `ports`, so that the census agrees with the ports. The counters may have increased
        // since.
        census.entered = ports.iter().map(|port| port.counts[0]).sum();
        census.out = ports.iter().map(|port| port.counts[1]).sum::<u64>().saturating_sub(census.in_flight);
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

    /// Corrects the received and sent packets of ports that were handed over, because their counters go on counting in
    /// the next graph. `ports` has, by name, the received and sent packets at the change.
    pub fn settle(&mut self, ports: &[(String, [u64; 2])]) {
        for (name, [received, sent]) in ports {
            let Some(port) = self.ports.iter_mut().find(|port| port.name == *name) else { continue };
            self.census.entered -= port.counts[0] - received;
            self.census.out -= port.counts[1] - sent;
            (port.counts[0], port.counts[1]) = (*received, *sent);
        }
    }

    /// Removes from the reading of a replaced graph the counts that the next graph continues. Then readings of both
    /// graphs can be added. The removed counts are: waiting and held packets, the own counters of the functions and
    /// ports for which `kept_module` and `kept_port` return true, and all gauges.
    pub fn retire(&mut self, kept_module: impl Fn(&str) -> bool, kept_port: impl Fn(&str) -> bool) {
        for module in &mut self.modules {
            if kept_module(&module.name) {
                module.own.clear();
            } else {
                module.own.retain(|heading, _| !module.gauges.contains_key(heading));
            }
        }
        let census = &mut self.census;
        census.out += census.in_flight;
        (census.queued, census.held, census.in_flight) = (0, 0, 0);
        for port in self.ports.iter_mut().filter(|port| kept_port(&port.name)) {
            let refused = port.counts[3];
            census.entered -= port.counts[0];
            census.out -= port.counts[1];
            port.counts = [0, 0, 0, refused, 0];
            port.skipped.clear();
            port.longest = 0;
        }
        self.flows.iter_mut().for_each(|flow| flow.lost.retain(|port, _| !kept_port(port)));
        // `unread` is for ports that the end of the run closed too early. These ports were closed by a change of the
        // graph.
        self.ports.iter_mut().for_each(|port| port.unread = false);
    }

    /// Removes the modules, flows, ports, workers and functions' own counters that `present` does not have. It keeps
    /// the fates of their packets, the lines that could not be written to their files, and the flows that had missed an
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

    /// Returns the lines that modules could not write to their files.
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

    /// Records the flows that `present` does not have, or has without one of their objectives.
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

#[cfg(test)]
mod tests;
