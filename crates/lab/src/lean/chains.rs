//! The two chains of NALM's Table IV, run to completion on one core and pipelined over two.

use std::time::Duration;

use forebay_bench::counting::Counts;
use forebay_bench::ticks::Timed;
use forebay_instance::CoreError;
use serde::Serialize;

use crate::trial::{Case, Part, away, is_void, median, missing, parts};
use crate::{LabError, Progress};

/// The execution model of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// The whole chain runs on one core.
    RunToCompletion,
    /// The chain is cut in two parts. Each has a core.
    Pipelined,
}

impl Model {
    /// Returns the name for reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RunToCompletion => "run to completion",
            Self::Pipelined => "pipelined",
        }
    }
}

/// The figures of the paper: core cycles per packet on its machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paper {
    /// The cycles of the three functions.
    pub functions: [(&'static str, f64); 3],
    /// The cycles of the chain.
    pub chain: f64,
}

/// Table IV: chain A run to completion and pipelined, then chain B. The order is that of [`cases`].
const PAPER: [Paper; 4] = [
    Paper { functions: [("NAT", 210.3), ("DPI", 308.5), ("L3FWD", 160.6)], chain: 679.4 },
    Paper { functions: [("NAT", 69.3), ("DPI", 112.2), ("L3FWD", 26.1)], chain: 207.6 },
    Paper { functions: [("ACL", 10.3), ("LB", 15.5), ("L3FWD", 6.6)], chain: 32.4 },
    Paper { functions: [("ACL", 36.5), ("LB", 75.8), ("L3FWD", 23.3)], chain: 135.6 },
];

/// A chain in one execution model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chain {
    /// The name of the chain: A or B.
    pub chain: char,
    /// The execution model.
    pub model: Model,
    /// The use case that was run.
    pub case: Case,
    /// The paper's figures.
    pub paper: Paper,
    /// The reason why the chain was not run, if it was not.
    pub not_run: Option<String>,
    /// The measured figures.
    pub figures: Option<Stages>,
    /// Instructions per packet, ports and the engine included.
    pub ipp: Option<f64>,
}

impl Chain {
    /// Returns the instructions per packet that belong to no part. They include the instructions of hand-over, which
    /// are not counted separately.
    pub(super) fn residue_ipp(&self) -> Option<f64> {
        let parts: f64 = self.figures.as_ref()?.parts.iter().filter_map(|part| part.instructions).sum();
        self.ipp.map(|all| all - parts)
    }
}

/// The measured figures of a chain: medians over its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stages {
    /// Ticks of all workers' busy turns per packet that entered.
    pub cpp_ticks: f64,
    /// The smallest and the largest value of `cpp_ticks`, over the runs that count.
    pub cpp_range: (f64, f64),
    /// The cost of the paper's functions, then of ports and hand-over.
    pub parts: Vec<Part>,
    /// The ticks outside all parts: queues, scheduling and accounting. Measured directly.
    pub residue_ticks: Option<f64>,
    /// The packets per second that entered. The source offers as many packets as the chain accepts.
    pub pps: f64,
    /// The busy share of each worker.
    pub cur: Vec<f64>,
    /// The number of times that a batch found no room at the next worker, per packet handed over. The ticks include the
    /// waiting time. `None` if no packet was handed over.
    pub stalls: Option<f64>,
    /// The number of runs.
    pub runs: usize,
    /// The number of void runs: the machine was busy elsewhere for too long. They are left out of the figures, except
    /// if all runs are void.
    pub void: usize,
    /// The largest share of a run in which the machine was busy elsewhere.
    pub away: f64,
    /// The number of packets of all runs that are unaccounted for.
    pub missing: i64,
}

/// Returns the cases to run: each chain in each model, at the highest rate that it accepts.
pub(super) fn cases() -> Vec<(char, Model, Case)> {
    let of = |chain, name| {
        [(Model::RunToCompletion, "stages=1"), (Model::Pipelined, "stages=2")]
            .map(|(model, stages)| (chain, model, Case::new(name, &["rate=max", stages])))
    };
    [of('A', "sfc_a"), of('B', "sfc_b")].concat()
}

/// The name for the module that replies for the far side. It belongs to no function of the chain.
const FAR_SIDE: &str = "far side";

/// Returns the paper's function to which a module belongs.
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

/// Runs all cases in turn, `runs` times, so that a slow change of the machine affects all chains alike. `counts` has
/// one entry for each case.
pub(super) fn measure(
    cases: &[(char, Model, Case)],
    counts: &[Option<Counts>],
    span: Duration,
    runs: usize,
    progress: &mut dyn Progress,
) -> Result<Vec<Chain>, LabError> {
    let mut timed: Vec<Result<Vec<Timed>, String>> = cases.iter().map(|_| Ok(Vec::new())).collect();
    for number in 0..runs {
        // An interruption ends a whole turn, so that all chains have the same number of runs.
        if number > 0 && progress.is_stopped() {
            break;
        }
        for ((chain, model, case), timed) in cases.iter().zip(&mut timed) {
            progress.step(&format!("chain {chain} {}, {} of {runs}", model.name(), number + 1));
            if let Ok(done) = timed {
                match case.run(span) {
                    Ok(run) => done.push(run),
                    // A machine with one core cannot run pipelines. The report notes this; it is not an error.
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
            Err(reason) => (None, Some(reason)),
        };
        let ipp = counts.map(|counts| counts.all as f64 / counts.served.packets as f64);
        let (case, paper) = (case.clone(), PAPER[at]);
        chains.push(Chain { chain: *chain, model: *model, case, paper, not_run, figures, ipp });
    }
    Ok(chains)
}

/// Returns the medians over runs. Void runs are left out if there are others. `None` if no run processed a packet.
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

/// Returns the stalls per packet handed over. `None` if no packet was handed over.
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
            let source = forebay_pipeline::usecase(case.name, &case.settings).expect("it is valid");
            let checked = forebay_pipeline::check(&source).expect("it is valid");
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
        // If other tests occupy the cores, packets take longer to arrive.
        let spans = [30, 300, 3_000].map(Duration::from_millis);
        let figures =
            spans.into_iter().find_map(|span| match Case::new("sfc_a", &["rate=max", "stages=2"]).run(span) {
                Ok(run) => stages(&[run], None).filter(is_whole).map(Some),
                Err(LabError::Cores(error)) => {
                    drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: {error}\n")));
                    Some(None)
                }
                Err(error) => panic!("{error}"),
            });
        let Some(figures) = figures.expect("packets came to all") else { return };
        assert_eq!((figures.cur.len(), figures.missing, figures.runs), (2, 0, 1));
        assert!(figures.cur.iter().all(|cur| (0.0..=1.0).contains(cur)), "{figures:?}");
    }

    /// Returns whether all parts were timed.
    fn is_whole(stages: &Stages) -> bool {
        !stages.parts.is_empty() && stages.parts.iter().all(|part| part.ticks.is_some_and(|ticks| ticks > 0.0))
    }
}
