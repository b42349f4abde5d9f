//! Instructions per packet, counted: the same pipeline on a fixed input in simulated time, under callgrind.
//!
//! Counting is asked for with [`count`], which runs this very program under valgrind; there [`serve`] does what is counted.
//! Time is simulated and hashes are the seed's, so that every run takes the same path, to the instruction. What is counted
//! is a busy chain: sources give whole batches whatever their rate, and turns that find nothing to do are left out.
//!
//! Three things of the surroundings would show in the figures, and are kept from it. The C library chooses how it copies
//! by the processor and its caches: [`TUNABLES`] leaves it one choice. How much it does depends on how addresses are
//! aligned, and those of the first thread's stack and heap on the environment, the arguments and names of files: so the
//! environment is empty, and what is counted is done on a thread of its own, whose stack and heap begin at whole pages.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use forebay_graph::drive::simulate_team_by;
use forebay_graph::{
    Cost, Function, MakeError, Next, OpenPort, Plan, RunToCompletion, Scheduler, SchedulerKind, Team, WeightedFair,
    Worker, links,
};
use forebay_instance::Simulation;
use forebay_measure::machine::c_library;
use forebay_measure::{Nanos, Simulated};
use forebay_packet::{Pool, Ticks};
use serde::{Deserialize, Serialize};

use crate::callgrind::{Profile, ProfileError};
use crate::named::{NAMES, Named, NamedPort, SYMBOLS};
use crate::ticks::Kind;

/// Simulated time between two looks at how many packets have come.
const SLICE: Nanos = Nanos(10_000);
/// Slices after which a pipeline that gets hardly any packets is taken as it is.
const PATIENCE: usize = 100_000;
/// What a module's call takes in simulated time: about as much as functions do. Packets are so far apart as those of a
/// busy worker: what meters, ages or wakes by time finds it going by, and a scheduler that shares time has some to share.
const COST: Cost = Cost { per_batch: 100, per_packet: 10 };
/// How the C library is to copy and compare: with AVX2, without instructions that repeat by themselves (they would be counted
/// byte by byte), as if caches were so large. Its comparison with MOVBE goes another way where one of the two lies near a
/// page's end, and where small blocks lie on the heap is a matter of chance.
const TUNABLES: &str = "glibc.cpu.hwcaps=-ERMS,-FSRM,-RTM,-MOVBE,-AVX512F,-AVX512VL,-AVX512BW:\
    glibc.cpu.x86_data_cache_size=0x8000:glibc.cpu.x86_shared_cache_size=0x100000:\
    glibc.cpu.x86_non_temporal_threshold=0xc0000";
/// What valgrind needs of the environment.
const ENVIRONMENT: [&str; 3] = ["PATH", "TMPDIR", "VALGRIND_LIB"];
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Packets that entered.
    pub packets: u64,
    /// By module: its name, packets and calls.
    pub modules: Vec<(String, u64, u64)>,
    /// By port: its name, packets that it gave, and that it took.
    #[serde(default)]
    pub ports: Vec<(String, u64, u64)>,
    /// By module: its function.
    #[serde(default)]
    pub functions: Vec<String>,
    /// The largest batch.
    #[serde(default)]
    pub batch: usize,
    /// The program that was counted.
    #[serde(default)]
    pub build: Build,
}

/// The program that was counted, told by itself as it ran under the counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Its version.
    pub forebay: String,
    /// `release`, or `debug` where it checks itself.
    pub profile: String,
    /// The instruction set that it was compiled for, and what it found the counter's processor to have.
    pub instruction_set: String,
    /// The C library that it runs with, where it is known: most copies are its.
    pub c_library: Option<String>,
}

/// Counts that say nothing about each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the baseline is of '{before}', this program of '{now}': their counts are no measure of each other; allowed is the same. Build it like that, or compare two builds of here (--against PROGRAM), or count the baseline anew (--update)"
)]
pub struct OtherBuild {
    /// Of the baseline.
    pub before: String,
    /// Of this program.
    pub now: String,
}

impl Build {
    /// Whether this build's counts can be compared with those of `now`. What is to be said of it besides.
    ///
    /// # Errors
    /// [`OtherBuild`]: another instruction set, or one that checks itself against one that does not.
    pub fn compares(&self, now: &Self) -> Result<Option<String>, OtherBuild> {
        if self.instruction_set != now.instruction_set {
            return Err(OtherBuild { before: self.instruction_set.clone(), now: now.instruction_set.clone() });
        }
        if self.profile != now.profile {
            return Err(OtherBuild {
                before: format!("a {} build", self.profile),
                now: format!("a {} build", now.profile),
            });
        }
        let known = |library: &Option<String>| library.clone().unwrap_or_else(|| "an unknown C library".to_owned());
        Ok((self.c_library != now.c_library).then(|| {
            format!(
                "the baseline was counted with {}, this is {}: where whole frames are copied the difference may be theirs",
                known(&self.c_library),
                known(&now.c_library)
            )
        }))
    }

    fn this() -> Self {
        Self {
            forebay: env!("CARGO_PKG_VERSION").to_owned(),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            instruction_set: instruction_set(),
            c_library: c_library(),
        }
    }
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
    /// By port: of giving packets, and of taking them.
    #[serde(default)]
    pub ports: Vec<[u64; 2]>,
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
    /// It says something else than what it counted.
    #[error("the program that was counted is of another version: it does not say what it did")]
    Answer,
    /// Files.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Counts: runs `program count PIPELINE`, with settings, under callgrind, as many times as needed to tell all modules apart; it
/// must call [`serve`]. A name that is relative is so to a folder that is gone afterwards.
///
/// # Errors
/// [`CountError`].
pub fn count(program: &Path, pipeline: &str, settings: &[String], extent: Extent) -> Result<Counts, CountError> {
    let mut counts: Option<Counts> = None;
    loop {
        let first = counts.as_ref().map_or(0, Counts::told);
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("profile");
        let mut tool = Command::new("valgrind");
        tool.args(["--quiet", "--tool=callgrind", "--compress-strings=no"])
            .arg(format!("--callgrind-out-file={}", file.display()))
            .arg(format!("--toggle-collect={INSIDE}"))
            .arg(program)
            .args(["count", pipeline])
            .args(settings.iter().flat_map(|setting| ["--set", setting.as_str()]))
            .args(
                [("--first", first as u64), ("--before", extent.before), ("--packets", extent.packets)]
                    .iter()
                    .flat_map(|(name, number)| [(*name).to_owned(), number.to_string()]),
            )
            .env_clear()
            .envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .env("GLIBC_TUNABLES", TUNABLES)
            .current_dir(folder.path())
            .stdin(Stdio::null());
        let output = tool.output().map_err(CountError::Valgrind)?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(CountError::Failed(error));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let served: Option<Served> = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
        let Some(served) = served else { return Err(CountError::Answer) };
        let profile = Profile::read(&file)?;
        let counts = counts.get_or_insert_with(|| Counts {
            all: profile.total(),
            modules: Vec::new(),
            ports: Vec::new(),
            instruction_set: served.build.instruction_set.clone(),
            served,
        });
        let (modules, parts) = (counts.served.modules.len(), counts.served.modules.len() + counts.served.ports.len());
        for (part, symbol) in (first..parts).zip(SYMBOLS) {
            if part < modules {
                counts.modules.push(profile.called_by(symbol));
            } else {
                counts.ports.push(["receive", "send"].map(|way| profile.called_by(&format!("{symbol}{way}"))));
            }
        }
        if counts.told() >= parts {
            return Ok(counts.clone());
        }
    }
}

impl Counts {
    /// How many modules and ports have been told apart.
    fn told(&self) -> usize {
        self.modules.len() + self.ports.len()
    }

    /// Instructions per packet of the module or port of this name, as [`Part`](crate::ticks::Part) names them.
    #[must_use]
    pub fn per_packet(&self, name: &str, kind: Kind) -> Option<f64> {
        let ports = || self.served.ports.iter().zip(&self.ports);
        let port = |told: &str| name.rsplit_once('.').is_some_and(|(port, _)| port == told);
        let (instructions, packets) = match kind {
            Kind::Module => {
                let mut modules = self.served.modules.iter().zip(&self.modules);
                modules.find(|((told, ..), _)| told == name).map(|((_, packets, _), count)| (*count, *packets))
            }
            Kind::Receive => {
                ports().find(|((told, ..), _)| port(told)).map(|((_, given, _), count)| (count[0], *given))
            }
            Kind::Send => ports().find(|((told, ..), _)| port(told)).map(|((.., taken), count)| (count[1], *taken)),
            Kind::HandOver => None,
        }?;
        (packets > 0).then(|| instructions as f64 / packets as f64)
    }

    /// Instructions that are no module's and no port's.
    #[must_use]
    pub fn residue(&self) -> u64 {
        let known = self.modules.iter().chain(self.ports.iter().flatten()).sum();
        self.all.saturating_sub(known)
    }
}

/// What instructions there are: those that the program was compiled for, and those that this processor has.
fn instruction_set() -> String {
    let told = [
        ("popcnt", cfg!(target_feature = "popcnt")),
        ("avx2", cfg!(target_feature = "avx2")),
        ("bmi2", cfg!(target_feature = "bmi2")),
        ("fma", cfg!(target_feature = "fma")),
        ("movbe", cfg!(target_feature = "movbe")),
        ("avx512f", cfg!(target_feature = "avx512f")),
    ];
    #[cfg(target_arch = "x86_64")]
    let seen = [
        ("popcnt", is_x86_feature_detected!("popcnt")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("bmi2", is_x86_feature_detected!("bmi2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("movbe", is_x86_feature_detected!("movbe")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let seen = told;
    let list = |features: [(&'static str, bool); 6]| {
        let with: Vec<_> = features.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
        if with.is_empty() { "nothing more".to_owned() } else { with.join(" ") }
    };
    format!("{}, compiled for {}, run with {}", std::env::consts::ARCH, list(told), list(seen))
}

/// Runs what is counted, the modules from `first` on under names of their own. `load` makes the plans.
///
/// # Errors
/// A pipeline that cannot be made.
pub fn serve<E: From<MakeError> + Send>(
    load: impl FnOnce() -> Result<Vec<Plan>, E> + Send,
    first: usize,
    extent: Extent,
) -> Result<Served, E> {
    std::thread::scope(|scope| {
        let served = scope.spawn(move || Ok(serve_plans(load()?, first, extent)?)).join();
        served.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn serve_plans(mut plans: Vec<Plan>, first: usize, extent: Extent) -> Result<Served, MakeError> {
    for plan in &mut plans {
        let modules = plan.modules.iter_mut().enumerate().skip(first).take(NAMES);
        for (number, module) in modules {
            module.function = module.function.take().map(|function| {
                let named: Box<dyn Function> = Box::new(Named::new(function, number - first));
                named
            });
        }
        let modules = plan.modules.len();
        for (at, port) in plan.ports.iter_mut().enumerate() {
            let number = (modules + at).checked_sub(first).filter(|number| *number < NAMES);
            port.open = port.open.take().map(|mut open| {
                open.port.saturate();
                match number {
                    Some(number) => OpenPort { port: Box::new(NamedPort::new(open.port, number)), ..open },
                    None => open,
                }
            });
        }
    }
    let functions = plans[0].modules.iter().map(|module| module.kind.to_owned()).collect();
    let batch = plans[0].batch;
    let served = match plans[0].scheduler {
        SchedulerKind::RunToCompletion => serve_with::<RunToCompletion>(plans, extent),
        SchedulerKind::WeightedFair => serve_with::<WeightedFair>(plans, extent),
    };
    served.map(|served| Served { functions, batch, build: Build::this(), ..served })
}

fn serve_with<S: Scheduler>(plans: Vec<Plan>, extent: Extent) -> Result<Served, MakeError> {
    let team = Arc::new(Team::new(plans.len()));
    let rings = links(&plans[0], &plans[0].placement);
    let mut workers: Vec<Worker<Simulated, S>> = Vec::new();
    for (plan, ring) in plans.into_iter().zip(rings) {
        let pool = Pool::new(plan.pool).map_err(MakeError::from)?;
        let clock = Simulated::new(Simulation::frequency());
        let costs = vec![COST; plan.modules.len()];
        workers.push(Worker::member(plan, clock, costs, pool, ring, Arc::clone(&team))?);
    }
    let mut until = Ticks::ZERO;
    run(&mut workers, &mut until, extent.before, Worker::turn);
    let before = Tally::of(&workers);
    run(&mut workers, &mut until, extent.before + extent.packets, |worker| {
        // Nobody pays for polls that find nothing: the share of time that is busy tells of them.
        if worker.has_work() { counted(worker) } else { worker.turn() }
    });
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
    ports: Vec<(String, u64, u64)>,
}

impl Tally {
    fn of<S: Scheduler>(workers: &[Worker<Simulated, S>]) -> Self {
        let mut modules: Vec<(String, u64, u64)> = Vec::new();
        let mut ports = modules.clone();
        for worker in workers {
            let telemetry = worker.telemetry();
            for (at, told) in telemetry.ports.iter().enumerate() {
                if at == ports.len() {
                    ports.push((told.name.clone(), 0, 0));
                }
                ports[at].1 += told.counters.received.get();
                ports[at].2 += told.counters.sent.get();
            }
            for (at, (told, counters)) in telemetry.modules.iter().zip(&*telemetry.counters).enumerate() {
                if at == modules.len() {
                    modules.push((told.name.clone(), 0, 0));
                }
                modules[at].1 += counters.packets.get();
                modules[at].2 += counters.batches();
            }
        }
        Self { packets: entered(workers), modules, ports }
    }

    fn since(self, before: &Self) -> Served {
        let since = |now: Vec<(String, u64, u64)>, before: &[(String, u64, u64)]| {
            let pairs = now.into_iter().zip(before);
            pairs.map(|((name, one, other), before)| (name, one - before.1, other - before.2)).collect()
        };
        Served {
            packets: self.packets - before.packets,
            modules: since(self.modules, &before.modules),
            ports: since(self.ports, &before.ports),
            ..Served::default()
        }
    }
}
