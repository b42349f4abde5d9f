//! The two chains of NALM's Table IV, run to completion on one core and pipelined over two.

use std::time::Duration;

use forebay_instance::CoreError;
use forebay_lean::counting::Counts;
use forebay_lean::ticks::Timed;
use serde::Serialize;

use crate::trial::{Case, Part, away, is_void, median, missing, parts};
use crate::{LabError, Progress};

/// How a chain is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// All of it on one core.
    RunToCompletion,
    /// Cut in two, a core each.
    Pipelined,
}

impl Model {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RunToCompletion => "run to completion",
            Self::Pipelined => "pipelined",
        }
    }
}

/// What the paper measured: core cycles per packet on its machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paper {
    /// Of the three functions.
    pub functions: [(&'static str, f64); 3],
    /// Of the chain.
    pub chain: f64,
}

/// Table IV: A run to completion and pipelined, then B.
const PAPER: [Paper; 4] = [
    Paper { functions: [("NAT", 210.3), ("DPI", 308.5), ("L3FWD", 160.6)], chain: 679.4 },
    Paper { functions: [("NAT", 69.3), ("DPI", 112.2), ("L3FWD", 26.1)], chain: 207.6 },
    Paper { functions: [("ACL", 10.3), ("LB", 15.5), ("L3FWD", 6.6)], chain: 32.4 },
    Paper { functions: [("ACL", 36.5), ("LB", 75.8), ("L3FWD", 23.3)], chain: 135.6 },
];

/// A chain in one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chain {
    /// A or B.
    pub chain: char,
    /// How it was run.
    pub model: Model,
    /// What was run.
    pub case: Case,
    /// The paper's figures.
    pub paper: Paper,
    /// Why it was not run, where it was not.
    pub not_run: Option<String>,
    /// Its figures.
    pub figures: Option<Stages>,
    /// Instructions per packet, ports and the engine included.
    pub ipp: Option<f64>,
}

impl Chain {
    /// Instructions per packet that are no part's. Those of hand-over are not told apart: they are here.
    pub(super) fn residue_ipp(&self) -> Option<f64> {
        let parts: f64 = self.figures.as_ref()?.parts.iter().filter_map(|part| part.instructions).sum();
        self.ipp.map(|all| all - parts)
    }
}

/// What runs of a chain have shown: medians over them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stages {
    /// Ticks of all workers' busy turns per packet that entered.
    pub cpp_ticks: f64,
    /// The least and the largest of the runs.
    pub cpp_range: (f64, f64),
    /// By the paper's functions; then ports and hand-over.
    pub parts: Vec<Part>,
    /// What is none of these: queues, scheduling, accounting. Measured by itself.
    pub residue_ticks: Option<f64>,
    /// Packets a second that entered, as many as it would take.
    pub pps: f64,
    /// By worker: the share of its time that it was busy.
    pub cur: Vec<f64>,
    /// How often a batch found no room at the next worker, per packet handed over: waiting for it is in the ticks.
    pub stalls: Option<f64>,
    /// How many runs.
    pub runs: usize,
    /// Those of them that are void, the machine having been elsewhere for too long: figures are of the others, if there are any.
    pub void: usize,
    /// The largest share of a run in which it was.
    pub away: f64,
    /// Packets of all runs that are unaccounted for.
    pub missing: i64,
}

/// What is run: each chain in each model, as many packets as it takes.
pub(super) fn cases() -> Vec<(char, Model, Case)> {
    let of = |chain, name| {
        [(Model::RunToCompletion, "stages=1"), (Model::Pipelined, "stages=2")]
            .map(|(model, stages)| (chain, model, Case::new(name, &["rate=max", stages])))
    };
    [of('A', "sfc_a"), of('B', "sfc_b")].concat()
}

/// The module that answers for the far side, which is none of the chain's functions.
const FAR_SIDE: &str = "far side";

/// The paper's function that a module is part of.
fn function(module: &str) -> String {
    match module {
        "nat" | "back" => "NAT",
        "peer" => FAR_SIDE,
        "dpi" => "DPI",
        "acl" => "ACL",
        "balance" => "LB",
        _ => "L3FWD",
    }
    .to_owned()
}

/// Runs all in turn, as many times as told, so that what changes slowly on the machine is not one chain's alone.
pub(super) fn measure(
    cases: &[(char, Model, Case)],
    counts: &[Option<Counts>],
    span: Duration,
    runs: usize,
    progress: &mut dyn Progress,
) -> Result<Vec<Chain>, LabError> {
    let mut timed: Vec<Result<Vec<Timed>, String>> = cases.iter().map(|_| Ok(Vec::new())).collect();
    for number in 0..runs {
        // Each chain has as many runs as the others.
        if number > 0 && progress.is_stopped() {
            break;
        }
        for ((chain, model, case), timed) in cases.iter().zip(&mut timed) {
            progress.step(&format!("chain {chain} {}, {} of {runs}", model.name(), number + 1));
            if let Ok(done) = timed {
                match case.run(span) {
                    Ok(run) => done.push(run),
                    // A machine of one core has no pipelines: that is told, not an error.
                    Err(LabError::Cores(error @ CoreError::TooFew { .. })) => *timed = Err(error.to_string()),
                    Err(error) => return Err(error),
                }
            }
        }
    }
    let mut chains = Vec::new();
    for (at, (runs, (chain, model, case))) in timed.into_iter().zip(cases).enumerate() {
        let counts = counts[at].as_ref().filter(|counts| counts.served.packets > 0);
        let (figures, not_run) = match runs {
            Ok(runs) => (stages(&runs, counts), None),
            Err(told) => (None, Some(told)),
        };
        let ipp = counts.map(|counts| counts.all as f64 / counts.served.packets as f64);
        let (case, paper) = (case.clone(), PAPER[at]);
        chains.push(Chain { chain: *chain, model: *model, case, paper, not_run, figures, ipp });
    }
    Ok(chains)
}

/// The medians over runs, without those that are void as long as there are others; `None` where none got a packet.
fn stages(all: &[Timed], counts: Option<&Counts>) -> Option<Stages> {
    let sound: Vec<&Timed> = all.iter().filter(|run| !is_void(run)).collect();
    let void = all.len() - sound.len();
    let runs: Vec<&Timed> = if sound.is_empty() { all.iter().collect() } else { sound };
    let cpp: Vec<f64> = runs.iter().filter_map(|run| run.cpp()).collect();
    let by_run: Vec<Vec<Part>> = runs.iter().map(|run| parts(run, counts, function)).collect();
    let mut middle = by_run.first()?.clone();
    for (at, part) in middle.iter_mut().enumerate() {
        let ticks: Option<Vec<f64>> = by_run.iter().map(|parts| parts.get(at)?.ticks).collect();
        part.ticks = ticks.and_then(median);
    }
    let residues: Option<Vec<f64>> = runs.iter().map(|run| run.residue()).collect();
    let cpp_ticks = median(cpp.clone())?;
    let range = cpp.iter().fold((f64::INFINITY, 0.0f64), |(low, high), cpp| (low.min(*cpp), high.max(*cpp)));
    let of_worker = |worker: usize| median(runs.iter().map(|run| run.report.workers[worker].busy).collect());
    Some(Stages {
        cpp_ticks,
        cpp_range: range,
        parts: middle,
        residue_ticks: residues.and_then(median),
        pps: median(runs.iter().map(|run| run.report.packets.entered as f64 / run.report.duration_s).collect())?,
        cur: (0..runs[0].report.workers.len()).filter_map(of_worker).collect(),
        stalls: stalls(&runs),
        runs: all.len(),
        void,
        away: runs.iter().map(|run| away(run)).fold(0.0, f64::max),
        missing: all.iter().map(missing).sum(),
    })
}

/// Stalls per packet handed over; `None` where none is.
fn stalls(runs: &[&Timed]) -> Option<f64> {
    let workers = || runs.iter().flat_map(|run| &run.report.workers);
    let handed: u64 = workers().map(|worker| worker.handed).sum();
    (handed > 0).then(|| workers().map(|worker| worker.stalls).sum::<u64>() as f64 / handed as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_of_the_chains_is_part_of_one_of_the_papers_functions() {
        for ((_, _, case), paper) in cases().iter().zip(PAPER) {
            let source = forebay_pipeline::usecase(case.name, &case.settings).expect("in order");
            let checked = forebay_pipeline::check(&source).expect("in order");
            let names = paper.functions.map(|(name, _)| name);
            let mut seen: Vec<String> = checked.modules.iter().map(|(name, _)| function(name)).collect();
            seen.retain(|name| name != FAR_SIDE);
            seen.dedup();
            assert_eq!(seen, names);
            let sum: f64 = paper.functions.iter().map(|(_, cycles)| cycles).sum();
            assert!((sum - paper.chain).abs() < 0.15, "{sum}");
        }
    }

    #[test]
    fn a_pipelined_chain_has_two_workers_and_loses_nothing() {
        // Where other tests have the cores, it takes longer for packets to come.
        let spans = [30, 300, 3_000].map(Duration::from_millis);
        let told = spans.into_iter().find_map(|span| match Case::new("sfc_a", &["rate=max", "stages=2"]).run(span) {
            Ok(run) => stages(&[run], None).filter(is_whole).map(Some),
            Err(LabError::Cores(error)) => {
                drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: {error}\n")));
                Some(None)
            }
            Err(error) => panic!("{error}"),
        });
        let Some(told) = told.expect("packets came to all") else { return };
        assert_eq!((told.cur.len(), told.missing, told.runs), (2, 0, 1));
        assert!(told.cur.iter().all(|cur| (0.0..=1.0).contains(cur)), "{told:?}");
    }

    /// Whether all parts were timed.
    fn is_whole(stages: &Stages) -> bool {
        !stages.parts.is_empty() && stages.parts.iter().all(|part| part.ticks.is_some_and(|ticks| ticks > 0.0))
    }
}
