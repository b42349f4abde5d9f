//! The counters at one instant.

use std::collections::BTreeMap;

use forebay_measure::{Counter, Distribution};
use forebay_packet::Ticks;

use super::ModuleReport;
use crate::telemetry::{BACKPRESSURE, ReasonCounters, SIZE_CLASSES, Telemetry};
use crate::worker::Census;

/// What the counters say at one instant. Exact between a worker's turns; taken from another thread, counters of one
/// reading may be some packets apart.
#[derive(Clone, Debug)]
pub struct Reading {
    /// When.
    pub(super) at: Ticks,
    pub(super) census: Census,
    pub(super) created: Vec<(String, u64)>,
    pub(super) dropped: Vec<(String, u64)>,
    pub(super) consumed: Vec<(String, u64)>,
    pub(super) modules: Vec<ModuleReading>,
    /// By flow: delays, violations.
    pub(super) flows: Vec<(Distribution, u64)>,
    /// By port: received, sent, dropped, refused, errors.
    pub(super) ports: Vec<[u64; 5]>,
    pub(super) busy: u64,
    pub(super) all: u64,
    pub(super) turns: u64,
    pub(super) clocks: u64,
    pub(super) exhausted: u64,
}

/// A module's counters.
#[derive(Clone, Debug)]
pub(super) struct ModuleReading {
    packets: u64,
    sizes: [u64; SIZE_CLASSES],
    ticks: u64,
    timed_packets: u64,
    timed_batches: u64,
    dropped: u64,
    own: Vec<Vec<u64>>,
}

impl Reading {
    /// What `telemetry` says at the instant `at` of the worker's clock.
    #[must_use]
    pub fn of(telemetry: &Telemetry, at: Ticks) -> Self {
        let named = |of: fn(&crate::telemetry::ModuleTelemetry) -> &ReasonCounters| {
            let modules = telemetry.modules.iter();
            let named =
                modules.flat_map(|told| of(told).iter().map(|(name, count)| (format!("{}.{name}", told.name), count)));
            named.collect::<Vec<_>>()
        };
        let worker = &telemetry.worker;
        let mut dropped = named(|told| &told.drops);
        let turned_away = |told: &crate::telemetry::ModuleTelemetry| {
            (format!("{}.{BACKPRESSURE}", told.name), told.turned_away.get())
        };
        dropped.extend(telemetry.modules.iter().map(turned_away));
        dropped.extend(telemetry.ports.iter().map(|told| (format!("{}.refused", told.name), told.refused.get())));
        let others = [("unwanted", &worker.unwanted), ("no_gate", &worker.no_gate), ("wound_up", &worker.wound_up)];
        dropped.extend(others.map(|(name, count)| (name.to_owned(), count.get())));
        Self {
            at,
            census: Census::of(telemetry),
            created: named(|told| &told.creates),
            dropped,
            consumed: named(|told| &told.consumes),
            modules: (0..telemetry.modules.len()).map(|module| ModuleReading::of(telemetry, module)).collect(),
            flows: telemetry.flows.iter().map(|told| (told.delay.read(), told.violations.get())).collect(),
            ports: telemetry
                .ports
                .iter()
                .map(|told| {
                    let own = &told.counters;
                    [&own.received, &own.sent, &own.dropped, &told.refused, &own.errors].map(Counter::get)
                })
                .collect(),
            busy: worker.busy.get(),
            all: worker.all.get(),
            turns: worker.turns.get(),
            clocks: worker.arrival_clocks.get(),
            exhausted: worker.exhausted.get(),
        }
    }

    /// What was read before anything had happened, at the instant `at`.
    #[must_use]
    pub fn nothing(telemetry: &Telemetry, at: Ticks) -> Self {
        let mut reading = Self::of(telemetry, at);
        reading.census = Census::default();
        for counts in [&mut reading.created, &mut reading.dropped, &mut reading.consumed] {
            counts.iter_mut().for_each(|(_, count)| *count = 0);
        }
        for module in &mut reading.modules {
            let own = module.own.iter().map(|counts| vec![0; counts.len()]).collect();
            *module = ModuleReading {
                own,
                packets: 0,
                sizes: [0; SIZE_CLASSES],
                ticks: 0,
                timed_packets: 0,
                timed_batches: 0,
                dropped: 0,
            };
        }
        reading.flows.iter_mut().for_each(|flow| *flow = (Distribution::default(), 0));
        reading.ports.iter_mut().for_each(|port| *port = [0; 5]);
        (reading.busy, reading.all, reading.turns, reading.exhausted) = (0, 0, 0, 0);
        reading
    }
}

impl ModuleReading {
    fn of(telemetry: &Telemetry, module: usize) -> Self {
        let (counters, told) = (&telemetry.counters[module], &telemetry.modules[module]);
        let mut sizes = [0; SIZE_CLASSES];
        sizes.iter_mut().zip(&counters.sizes).for_each(|(size, count)| *size = count.get());
        Self {
            packets: counters.packets.get(),
            sizes,
            ticks: counters.ticks.get(),
            timed_packets: counters.timed_packets.get(),
            timed_batches: counters.timed_batches.get(),
            dropped: told.drops.total() + told.turned_away.get(),
            own: told.own.iter().map(|(_, counts, _)| counts.iter().map(Counter::get).collect()).collect(),
        }
    }
}

/// A module between two readings, in which `span` ticks of worker's time or `seconds` passed.
pub(super) fn module(
    telemetry: &Telemetry,
    module: usize,
    earlier: &Reading,
    later: &Reading,
    (span, seconds): (u64, f64),
) -> ModuleReport {
    let (told, counters) = (&telemetry.modules[module], &telemetry.counters[module]);
    let (before, now) = (&earlier.modules[module], &later.modules[module]);
    let mut sizes = now.sizes;
    sizes.iter_mut().zip(before.sizes).for_each(|(count, before)| *count -= before);
    let batches: u64 = sizes.iter().sum();
    let packets = now.packets - before.packets;
    let ticks = (now.ticks - before.ticks) as f64;
    let ratio = |over: u64| (over > 0).then(|| ticks / over as f64);
    let ticks_per_batch = ratio(now.timed_batches - before.timed_batches);
    let mut own: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for (at, (heading, _, names)) in told.own.iter().enumerate() {
        let of_heading = own.entry(heading.clone()).or_default();
        for (name, (now, before)) in names.iter().zip(now.own[at].iter().zip(&before.own[at])) {
            *of_heading.entry(name.clone()).or_insert(0) += now.wrapping_sub(*before);
        }
    }
    let trigger = counters.trigger.get();
    ModuleReport {
        name: told.name.clone(),
        function: told.kind,
        packets,
        rate_pps: if seconds > 0.0 { packets as f64 / seconds } else { 0.0 },
        batches,
        batch_mean: (batches > 0).then(|| packets as f64 / batches as f64),
        batch_sizes: sizes,
        trigger,
        weight: Some(counters.weight.get()).filter(|weight| *weight > 0),
        hold_us: (trigger > 0).then(|| telemetry.frequency.micros(counters.hold.get() as f64)),
        ticks_per_packet: ratio(now.timed_packets - before.timed_packets),
        ticks_per_batch,
        share: ticks_per_batch.filter(|_| span > 0).map(|ticks| ticks * batches as f64 / span as f64),
        dropped: now.dropped - before.dropped,
        counters: own,
    }
}
