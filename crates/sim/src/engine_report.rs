//! Converts the results of a simulation into the engine's report, so that both print the same tables and the same JSON.
//!
//! The report omits figures that are not simulated: batch size distributions, counters of functions, and single ports.
//! Counts of extrapolated time are expected values, so sums may be off by some packets.

use std::collections::BTreeMap;

use forebay_graph::report::FlowFigures;
use forebay_protocol::{
    FlowLayout, ModuleLayout,
    report::{Cpu, FigureSource, FlowReport, ModuleReport, Packets, PortReport, Report, WorkerReport},
};
use forebay_units::{BitRate, Frequency, Nanos, PacketRate, Rate};

use crate::simulator::Simulator;

/// Ticks per second: a tick is a nanosecond.
const TICKS: f64 = 1e9;

impl Simulator {
    /// Returns the results since the beginning of the report, as an engine report.
    pub fn engine_report(&mut self) -> Report {
        let report = self.report();
        let mut dropped = BTreeMap::new();
        for ((_, module), result) in self.running(&report) {
            if result.turned_away > 0 {
                dropped.insert(format!("{}.backpressure", module.name), result.turned_away);
            }
        }
        if report.gone > 0 {
            dropped.insert("in_functions".to_owned(), report.gone);
        }
        let modules =
            self.running(&report).map(|((at, module), result)| self.module(at, module, result, report.seconds));
        let modules = modules.collect();
        let flows = self.layout().flows.iter().zip(&report.flows).zip(self.lengths());
        let flows = flows.map(|((flow, result), length)| self.flow(flow, (result, *length), &report)).collect();
        let worker = |(id, busy): (usize, &f64)| WorkerReport { id, busy: busy.min(1.0), ..WorkerReport::default() };
        Report {
            pipeline: self.layout().pipeline.clone(),
            forebay: env!("CARGO_PKG_VERSION").into(),
            kind: FigureSource::Simulated,
            cpu: Cpu { model: "simulated batch by batch".to_owned(), tsc_ghz: TICKS / 1e9 },
            duration_s: report.seconds,
            packets: Packets {
                entered: report.entered,
                lost: report.lost.iter().sum(),
                created: BTreeMap::new(),
                out: report.left,
                dropped,
                consumed: BTreeMap::new(),
                queued: report.queued,
                held: 0,
                in_flight: 0,
            },
            modules,
            flows,
            workers: report.busy.iter().enumerate().map(worker).collect(),
            ports: vec![PortReport {
                name: "all".to_owned(),
                kind: "simulated".into(),
                received: report.entered,
                sent: report.left,
                dropped: report.lost.iter().sum(),
                ..PortReport::default()
            }],
            arrival_clocks: vec!["intended".into()],
            pool_exhausted: 0,
            lost_lines: self.lost_lines().to_vec(),
            removed_flows: Vec::new(),
            control: None,
        }
    }

    /// Returns the modules that run, each with its results.
    fn running<'r>(
        &'r self,
        report: &'r crate::Report,
    ) -> impl Iterator<Item = ((usize, &'r ModuleLayout), crate::ModuleReport)> {
        self.layout().running().map(|(at, module)| ((at, module), report.modules[at]))
    }

    /// Returns the report of the module `at`, whose counts are `result`. `seconds` is the length of the report.
    fn module(&self, at: usize, layout: &ModuleLayout, result: crate::ModuleReport, seconds: f64) -> ModuleReport {
        let (now, spent) = (self.present(at), self.spent(at, result.calls, result.packets));
        let each = |of: f64, count: u64| (count > 0).then(|| of / count as f64);
        let batch_mean = each(result.packets as f64, result.calls);
        ModuleReport {
            name: layout.name.clone(),
            function: layout.function.clone().into(),
            workers: layout.workers.clone(),
            packets: result.packets,
            rate_pps: result.packets as f64 / seconds.max(f64::MIN_POSITIVE),
            batches: result.calls,
            batch_mean,
            ingress_mean: batch_mean.filter(|_| now.trigger == 0),
            batch_sizes: Default::default(),
            trigger: now.trigger as u64,
            hold_us: (now.trigger > 0).then(|| now.hold.seconds() * 1e6),
            weight: Some(u64::from(now.weight)).filter(|weight| *weight > 0),
            ticks_per_packet: each(spent * TICKS, result.packets),
            ticks_per_batch: each(spent * TICKS, result.calls),
            metered: None,
            share: Some(spent / (seconds * self.layout().workers as f64).max(f64::MIN_POSITIVE)),
            folded: None,
            dropped: result.turned_away,
            counters: BTreeMap::new(),
        }
    }

    /// Returns the report of a flow. `length` is the mean length of its packets in bytes.
    fn flow(
        &self,
        flow: &FlowLayout,
        (result, length): (&crate::FlowReport, f64),
        report: &crate::Report,
    ) -> FlowReport {
        let packets = flow.min_rate.map(|rate| Rate::Packets(PacketRate(rate)));
        let figures = FlowFigures {
            name: &flow.name,
            seconds: report.seconds,
            delays: &result.delay,
            violations: result.violations,
            slo: flow.slo_s.map(|slo| Nanos((slo * 1e9).round() as u64)),
            percentile: flow.percentile,
            bytes: (result.packets as f64 * length) as u64,
            min_rate: packets.or(flow.min_rate_bits.map(|rate| Rate::Bits(BitRate(rate)))),
            turned_away: self.turned_away(flow, report),
        };
        figures.report(Frequency::new(TICKS))
    }
}
