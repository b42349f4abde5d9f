//! Comparisons of simulated programs with made-up noise.

use std::collections::BTreeMap;

use forebay_protocol::report::Cpu;

use super::*;
use crate::hardware::Hardware;
use crate::measurement::{Chain, Origin, Sources, Worker};

/// A program with given figures.
#[derive(Clone)]
struct Model {
    /// By module: ticks, instructions, packets per call.
    modules: Vec<(&'static str, f64, f64, f64)>,
    slept: f64,
    /// Every run with a multiple of this number is void; 0 for none.
    void_every: u64,
    runs: u64,
    seed: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let modules = vec![("parse", 6.0, 20.0, 32.0), ("route", 11.0, 40.0, 32.0), ("sum", 25.0, 90.0, 32.0)];
        Self { modules, slept: 0.0, void_every: 0, runs: 0, seed }
    }

    /// Approximately normal, with a standard deviation of 1.
    fn noise(&mut self) -> f64 {
        let mut next = || {
            self.seed ^= self.seed << 13;
            self.seed ^= self.seed >> 7;
            self.seed ^= self.seed << 17;
            (self.seed >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..12).map(|_| next()).sum::<f64>() - 6.0
    }

    fn measured(&mut self) -> Measurement {
        // A process is some percent faster or slower as a whole, and each module in addition.
        let process = self.noise() * 0.02;
        let models = self.modules.clone();
        let modules: Vec<_> = models
            .into_iter()
            .map(|(name, ticks, ipp, packets_per_call)| Module {
                name: name.to_owned(),
                kind: PartType::Module,
                packets: 1_000,
                cpp_ticks: Some(ticks * (1.0 + process + self.noise() * 0.02)),
                ipp: Some(ipp),
                ipc: None,
                core_cpp: None,
                instructions_per_tick: None,
                packets_per_call: Some(packets_per_call),
                source: Sources {
                    cpp_ticks: Origin::Measured,
                    ipp: Origin::Emulated,
                    ipc: Origin::NotAvailable,
                    packets_per_call: Origin::Measured,
                },
            })
            .collect();
        let all = modules.iter().filter_map(|part| part.cpp_ticks).sum::<f64>();
        self.runs += 1;
        let chain = Chain {
            pps: Some(2.6e9 / all),
            entered_pps: 1e6,
            cpp_ticks: Some(all),
            cur: 0.5,
            ipp: Some(150.0),
            residue_ipp: Some(5.0),
            residue_ticks: Some(1.0),
            sum_ticks: Some(all),
            packets_per_turn: Some(32.0),
            void: self.void_every > 0 && self.runs.is_multiple_of(self.void_every),
            ndr_pps: None,
            pdr_pps: None,
            pps_by_counters: None,
            hardware: Hardware::default(),
        };
        let worker = Worker {
            id: 0,
            core: None,
            cur: 0.5,
            ipc: None,
            eipc: None,
            busy_turns: 1,
            residue_ticks_per_turn: Some(32.0),
            stalls: forebay_protocol::report::Stalls::default(),
            slept: Some((self.slept + self.noise() * 0.003).max(0.0)),
            disturbance: None,
        };
        Measurement {
            pipeline: "model".to_owned(),
            forebay: "0".to_owned(),
            cpu: Cpu { model: "none".to_owned(), tsc_ghz: 2.6 },
            instruction_set: None,
            profile: None,
            modules,
            workers: vec![worker],
            chain,
            unavailable: BTreeMap::new(),
            unmetered: None,
            search: None,
            lost_lines: Vec::new(),
        }
    }
}

impl Side for Model {
    type Error = std::convert::Infallible;

    fn run(&mut self) -> Result<Measurement, Self::Error> {
        Ok(self.measured())
    }
}

const LONG: Duration = Duration::from_secs(3_600);

fn compared(mut a: Model, mut b: Model) -> Comparison {
    let counted = [a.measured(), b.measured()];
    compare(&mut [a, b], &counted, LONG, &mut |_| {}).expect("it can run")
}

fn changed(comparison: &Comparison) -> Vec<(&str, Verdict, Option<Cause>)> {
    let changed = comparison.parts.iter().filter(|part| part.verdict != Verdict::Same);
    changed.map(|part| (part.name.as_str(), part.verdict, part.why.as_ref().map(|why| why.cause))).collect()
}

#[test]
fn a_program_does_not_differ_from_itself() {
    for seed in 1..=100 {
        let comparison = compared(Model::new(seed), Model::new(seed + 1_000));
        assert_eq!(changed(&comparison), [], "seed {seed}");
        assert!(comparison.is_no_worse() && comparison.less_busy.is_none());
        assert!(comparison.pairs >= FIRST);
    }
}

#[test]
fn a_change_of_three_percent_in_one_module_is_found_with_its_cause() {
    for seed in 1..=100 {
        let mut slower = Model::new(seed + 1_000);
        slower.modules[1] = ("route", 11.0 * 1.03, 40.0 * 1.03, 32.0);
        let comparison = compared(Model::new(seed), slower);
        assert!(
            changed(&comparison).contains(&("route", Verdict::Increased, Some(Cause::Code))),
            "seed {seed}: {comparison:?}"
        );
        assert!(!comparison.is_no_worse());
    }
}

#[test]
fn a_change_of_instructions_alone_is_reported_and_does_not_fail() {
    for (factor, verdict) in
        [(1.001, Verdict::MoreInstructions), (0.999, Verdict::FewerInstructions), (1.0004, Verdict::Same)]
    {
        let mut other = Model::new(12);
        other.modules[1].2 *= factor;
        let comparison = compared(Model::new(11), other);
        let route = comparison.parts.iter().find(|part| part.name == "route").expect("the part exists");
        assert_eq!((route.verdict, &route.why), (verdict, &None));
        assert!(comparison.is_no_worse(), "{comparison:?}");
    }
}

#[test]
fn parts_of_one_side_and_sleeping_workers_are_reported() {
    let mut other = Model::new(7);
    other.modules[0].0 = "read";
    other.slept = 0.1;
    let comparison = compared(Model::new(9), other);
    let changed: Vec<_> = changed(&comparison).into_iter().map(|(name, verdict, _)| (name, verdict)).collect();
    assert_eq!(changed, [("read", Verdict::Appeared), ("parse", Verdict::Gone)]);
    assert_eq!(comparison.less_busy.map(|why| why.cause), Some(Cause::LessBusy));
}

#[test]
fn void_runs_are_repeated_and_too_many_are_an_error() {
    let comparison = compared(Model { void_every: 5, ..Model::new(3) }, Model::new(4));
    assert!(comparison.voids >= comparison.pairs / 5, "{} of {}", comparison.voids, comparison.pairs);
    let (mut a, mut b) = (Model { void_every: 1, ..Model::new(3) }, Model::new(4));
    let counted = [a.measured(), b.measured()];
    let error = compare(&mut [a, b], &counted, LONG, &mut |_| {}).expect_err("all runs are void");
    assert!(matches!(error, CompareError::Void { voids: 21, .. }), "{error}");
}

#[test]
fn idle_runs_are_not_compared() {
    struct Idle(Model);
    impl Side for Idle {
        type Error = std::convert::Infallible;

        fn run(&mut self) -> Result<Measurement, Self::Error> {
            let mut measurement = self.0.measured();
            measurement.chain.cpp_ticks = None;
            Ok(measurement)
        }
    }
    let (mut a, mut b) = (Model::new(3), Model::new(4));
    let counted = [a.measured(), b.measured()];
    let error = compare(&mut [Idle(a), Idle(b)], &counted, LONG, &mut |_| {}).expect_err("nothing to compare");
    assert!(matches!(error, CompareError::Nothing), "{error}");
}

#[test]
fn too_little_time_for_enough_pairs_is_an_error() {
    let (mut a, mut b) = (Model::new(3), Model::new(4));
    let counted = [a.measured(), b.measured()];
    let error = compare(&mut [a, b], &counted, Duration::ZERO, &mut |_| {}).expect_err("no time");
    assert!(matches!(error, CompareError::Time { pairs: 1, .. }), "{error}");
}
