//! What a run has come to, as the engine tells of its own runs: the same tables and the same JSON.
//!
//! What is not simulated is left out: sizes of batches one by one, functions' own counters, ports one by one. Counts that stand for time
//! that was not simulated in detail are what is to be expected, so that sums are some packets off.

use std::collections::BTreeMap;

use forebay_graph::report::{FlowFigures, FlowReport, Kind, ModuleReport, Packets, PortReport, Report, WorkerReport};
use forebay_graph::{FlowLayout, ModuleLayout, Rate};
use forebay_measure::machine::Cpu;
use forebay_measure::{BitRate, Frequency, Nanos, PacketRate};

use crate::simulator::Simulator;

/// A tick is a nanosecond.
const TICKS: f64 = 1e9;

impl Simulator {
    /// What has happened since the beginning, as the engine tells it.
    pub fn told(&mut self) -> Report {
        let report = self.report();
        let mut dropped = BTreeMap::new();
        for ((_, module), told) in self.running(&report) {
            if told.turned_away > 0 {
                dropped.insert(format!("{}.backpressure", module.name), told.turned_away);
            }
        }
        if report.gone > 0 {
            dropped.insert("in_functions".to_owned(), report.gone);
        }
        let modules = self.running(&report).map(|((at, module), told)| self.module(at, module, told, report.seconds));
        let modules = modules.collect();
        let flows = self.layout().flows.iter().zip(&report.flows).zip(self.lengths());
        let flows = flows.map(|((flow, told), length)| self.flow(flow, (told, *length), &report)).collect();
        let worker = |(id, busy): (usize, &f64)| WorkerReport { id, busy: busy.min(1.0), ..WorkerReport::default() };
        Report {
            pipeline: self.layout().pipeline.clone(),
            forebay: env!("CARGO_PKG_VERSION").into(),
            kind: Kind::Simulated,
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

    /// The modules that run, each with what was counted of it.
    fn running<'r>(
        &'r self,
        report: &'r crate::Report,
    ) -> impl Iterator<Item = ((usize, &'r ModuleLayout), crate::ModuleReport)> {
        self.layout().running().map(|(at, module)| ((at, module), report.modules[at]))
    }

    fn module(&self, at: usize, layout: &ModuleLayout, told: crate::ModuleReport, seconds: f64) -> ModuleReport {
        let (now, spent) = (self.present(at), self.spent(at, told.calls, told.packets));
        let each = |of: f64, count: u64| (count > 0).then(|| of / count as f64);
        let batch_mean = each(told.packets as f64, told.calls);
        ModuleReport {
            name: layout.name.clone(),
            function: layout.function.clone().into(),
            workers: layout.workers.clone(),
            packets: told.packets,
            rate_pps: told.packets as f64 / seconds.max(f64::MIN_POSITIVE),
            batches: told.calls,
            batch_mean,
            ingress_mean: batch_mean.filter(|_| now.trigger == 0),
            batch_sizes: Default::default(),
            trigger: now.trigger as u64,
            hold_us: (now.trigger > 0).then(|| now.hold.seconds() * 1e6),
            weight: Some(u64::from(now.weight)).filter(|weight| *weight > 0),
            ticks_per_packet: each(spent * TICKS, told.packets),
            ticks_per_batch: each(spent * TICKS, told.calls),
            metered: None,
            share: Some(spent / (seconds * self.layout().workers as f64).max(f64::MIN_POSITIVE)),
            folded: None,
            dropped: told.turned_away,
            counters: BTreeMap::new(),
        }
    }

    /// `length`: bytes of its packets.
    fn flow(&self, flow: &FlowLayout, (told, length): (&crate::FlowReport, f64), report: &crate::Report) -> FlowReport {
        let packets = flow.min_rate.map(|rate| Rate::Packets(PacketRate(rate)));
        let figures = FlowFigures {
            name: &flow.name,
            seconds: report.seconds,
            delays: &told.delay,
            violations: told.violations,
            slo: flow.slo_s.map(|slo| Nanos((slo * 1e9).round() as u64)),
            percentile: flow.percentile,
            bytes: (told.packets as f64 * length) as u64,
            min_rate: packets.or(flow.min_rate_bits.map(|rate| Rate::Bits(BitRate(rate)))),
            turned_away: self.turned_away(flow, report),
        };
        figures.report(Frequency::new(TICKS))
    }
}
