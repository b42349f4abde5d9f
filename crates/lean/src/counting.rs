//! Instructions per packet, counted: the same pipeline on a fixed input in simulated time, under callgrind.
//!
//! Counting is asked for with [`count`], which runs this very program under valgrind; there [`serve`] does what is counted.
//! Time is simulated and hashes are the seed's, so that every run takes the same path, to the instruction.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use forebay_graph::drive::simulate_team_by;
use forebay_graph::{
    Function, MakeError, Next, Plan, RunToCompletion, Scheduler, SchedulerKind, Team, WeightedFair, Worker, links,
};
use forebay_instance::Simulation;
use forebay_measure::{Nanos, Simulated};
use forebay_packet::{Pool, Ticks};
use serde::{Deserialize, Serialize};

use crate::callgrind::{Profile, ProfileError};
use crate::named::{NAMES, Named, SYMBOLS};

/// Simulated time between two looks at how many packets have come.
const SLICE: Nanos = Nanos(10_000);
/// Slices after which a pipeline that gets hardly any packets is taken as it is.
const PATIENCE: usize = 100_000;
/// What counts: [`counted`].
const INSIDE: &str = "*::counting::counted*";

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Packets that enter before counting begins: tables fill, and what is done once is done.
    pub before: u64,
    /// Packets that enter while it lasts, at least.
    pub packets: u64,
}

impl Default for Extent {
    fn default() -> Self {
        Self { before: 4_096, packets: 16_384 }
    }
}

/// What one run under the counter did, told by the process that was counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Packets that entered.
    pub packets: u64,
    /// By module: its name, packets and calls.
    pub modules: Vec<(String, u64, u64)>,
}

/// Instructions of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// What was run.
    pub served: Served,
    /// All instructions of all workers, ports and the engine included.
    pub all: u64,
    /// By module, of its function's calls.
    pub modules: Vec<u64>,
    /// The instruction set of the program and of the counter's processor.
    pub instruction_set: String,
}

/// Why instructions cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// Valgrind cannot be run.
    #[error("valgrind cannot be run ({0}): install it (apt install valgrind)")]
    Valgrind(std::io::Error),
    /// What was counted failed.
    #[error("the run under valgrind failed: {0}")]
    Failed(String),
    /// Files.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Counts: runs `program` with `arguments` and the number of the first module to be told apart under callgrind, as many times
/// as needed for all; it must call [`serve`].
///
/// # Errors
/// [`CountError`].
pub fn count(program: &Path, arguments: &[String]) -> Result<Counts, CountError> {
    let mut counts: Option<Counts> = None;
    loop {
        let first = counts.as_ref().map_or(0, |counts| counts.modules.len());
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("profile");
        let mut tool = Command::new("valgrind");
        tool.args(["--quiet", "--tool=callgrind", "--compress-strings=no"])
            .arg(format!("--callgrind-out-file={}", file.display()))
            .arg(format!("--toggle-collect={INSIDE}"))
            .arg(program)
            .args(arguments)
            .arg(first.to_string())
            .stdin(Stdio::null());
        let output = tool.output().map_err(CountError::Valgrind)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let served: Option<Served> = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
        let Some(served) = served.filter(|_| output.status.success()) else {
            let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(CountError::Failed(error));
        };
        let profile = Profile::read(&file)?;
        let told_apart = served.modules.len().saturating_sub(first).min(NAMES);
        let here = SYMBOLS[..told_apart].iter().map(|symbol| profile.called_by(symbol));
        let counts = match &mut counts {
            Some(counts) => {
                counts.modules.extend(here);
                counts
            }
            None => {
                let modules = here.collect();
                let instruction_set = instruction_set();
                counts.insert(Counts { served, all: profile.total(), modules, instruction_set })
            }
        };
        if counts.modules.len() >= counts.served.modules.len() {
            return Ok(counts.clone());
        }
    }
}

/// The instruction set that the program was compiled for; the counter's own processor adds nothing to it but what the C
/// library chooses by itself.
fn instruction_set() -> String {
    let features = [
        ("avx512f", cfg!(target_feature = "avx512f")),
        ("avx2", cfg!(target_feature = "avx2")),
        ("bmi2", cfg!(target_feature = "bmi2")),
        ("movbe", cfg!(target_feature = "movbe")),
    ];
    let with: Vec<_> = features.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
    format!("{} ({})", std::env::consts::ARCH, with.join(", "))
}

/// Runs what is counted, the modules from `first` on under names of their own.
///
/// # Errors
/// A pipeline that cannot be made.
pub fn serve(mut plans: Vec<Plan>, first: usize, extent: Extent) -> Result<Served, MakeError> {
    for plan in &mut plans {
        let modules = plan.modules.iter_mut().enumerate().skip(first).take(NAMES);
        for (number, module) in modules {
            module.function = module.function.take().map(|function| {
                let named: Box<dyn Function> = Box::new(Named::new(function, number - first));
                named
            });
        }
    }
    match plans[0].scheduler {
        SchedulerKind::RunToCompletion => serve_with::<RunToCompletion>(plans, extent),
        SchedulerKind::WeightedFair => serve_with::<WeightedFair>(plans, extent),
    }
}

fn serve_with<S: Scheduler>(plans: Vec<Plan>, extent: Extent) -> Result<Served, MakeError> {
    let team = Arc::new(Team::new(plans.len()));
    let rings = links(&plans[0], &plans[0].placement);
    let mut workers: Vec<Worker<Simulated, S>> = Vec::new();
    for (plan, ring) in plans.into_iter().zip(rings) {
        let pool = Pool::new(plan.pool).map_err(MakeError::from)?;
        let clock = Simulated::new(Simulation::frequency());
        workers.push(Worker::member(plan, clock, Vec::new(), pool, ring, Arc::clone(&team))?);
    }
    let mut until = Ticks::ZERO;
    run(&mut workers, &mut until, extent.before, Worker::turn);
    let before = Tally::of(&workers);
    run(&mut workers, &mut until, extent.before + extent.packets, counted);
    Ok(Tally::of(&workers).since(&before))
}

/// Runs until so many packets have entered since the start, or nothing comes any more.
fn run<S: Scheduler>(
    workers: &mut [Worker<Simulated, S>],
    until: &mut Ticks,
    packets: u64,
    turn: impl Fn(&mut Worker<Simulated, S>) -> Next + Copy,
) {
    let slice = Simulation::frequency().ticks(SLICE);
    for _ in 0..PATIENCE {
        if entered(workers) >= packets {
            return;
        }
        *until += slice;
        simulate_team_by(workers, *until, turn);
    }
}

/// A turn that is counted: [`INSIDE`] is its symbol. What calls turns in simulated time, and asks for memory, is outside.
#[inline(never)]
fn counted<S: Scheduler>(worker: &mut Worker<Simulated, S>) -> Next {
    worker.turn()
}

fn entered<S: Scheduler>(workers: &[Worker<Simulated, S>]) -> u64 {
    let ports = |worker: &Worker<Simulated, S>| {
        worker.telemetry().ports.iter().map(|port| port.counters.received.get()).sum::<u64>()
    };
    workers.iter().map(ports).sum()
}

/// Packets that entered, and packets and calls of modules.
struct Tally {
    packets: u64,
    modules: Vec<(String, u64, u64)>,
}

impl Tally {
    fn of<S: Scheduler>(workers: &[Worker<Simulated, S>]) -> Self {
        let mut modules: Vec<(String, u64, u64)> = Vec::new();
        for worker in workers {
            let telemetry = worker.telemetry();
            for (at, (told, counters)) in telemetry.modules.iter().zip(&*telemetry.counters).enumerate() {
                if at == modules.len() {
                    modules.push((told.name.clone(), 0, 0));
                }
                modules[at].1 += counters.packets.get();
                modules[at].2 += counters.batches();
            }
        }
        Self { packets: entered(workers), modules }
    }

    fn since(self, before: &Self) -> Served {
        let modules = self.modules.into_iter().zip(&before.modules);
        let modules = modules.map(|((name, packets, calls), before)| (name, packets - before.1, calls - before.2));
        Served { packets: self.packets - before.packets, modules: modules.collect() }
    }
}
