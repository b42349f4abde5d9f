//! Instructions per packet, counted: the same pipeline on a fixed input in simulated time, under callgrind.
//!
//! Counting is asked for with [`count`], which runs this very program under valgrind; there [`serve`] does what is counted.
//! Time is simulated and hashes are the seed's, so that every run takes the same path, to the instruction. What is counted
//! is a busy chain: sources give whole batches whatever their rate, and turns that find nothing to do are left out.
//!
//! Some things of the surroundings would show in the figures, and are kept from it. The C library chooses how it copies
//! by the processor and its caches: [`TUNABLES`] leaves it one choice. How much it does depends on how addresses are
//! aligned, and those of the first thread's stack and heap on the environment, the arguments and names of files: so the
//! environment is empty, and what is counted is done on a thread of its own, whose stack and heap begin at whole pages. Where
//! a block lies on that heap would still depend on all before it: so does each block that is long enough to be copied in a
//! loop ([`placement`](forebay_measure::placement)), in a program whose allocator sees to it.

mod build;
mod caches;
mod serve;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::callgrind::{Profile, ProfileError};
use crate::named::SYMBOLS;
use crate::process::{PARENT, told};
use crate::ticks::Kind;

pub use build::{Build, OtherBuild};
pub use caches::{Misses, misses};
pub use serve::serve;

/// How the C library is to copy and compare: with AVX2, without instructions that repeat by themselves (they would be counted
/// byte by byte), as if caches were so large. Its comparison with MOVBE goes another way where one of the two lies near a
/// page's end, and where small blocks lie on the heap is a matter of chance.
const TUNABLES: &str = "glibc.cpu.hwcaps=-ERMS,-FSRM,-RTM,-MOVBE,-AVX512F,-AVX512VL,-AVX512BW:\
    glibc.cpu.x86_data_cache_size=0x8000:glibc.cpu.x86_shared_cache_size=0x100000:\
    glibc.cpu.x86_non_temporal_threshold=0xc0000";
/// What valgrind needs of the environment.
const ENVIRONMENT: [&str; 3] = ["PATH", "TMPDIR", "VALGRIND_LIB"];
/// What counts, by its symbol: a turn, in `serve`. Older builds have it elsewhere.
const INSIDE: &str = "*::counting::*counted*";

/// The profile's file.
const PROFILE: &str = "profile";

/// Checks of pointers that a build without optimisation calls, by their symbol.
const CHECKS: &str = "core::ub_checks::";

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Packets that enter before counting begins: tables fill, and what is done once is done.
    pub before: u64,
    /// Packets that enter while it lasts, at least.
    pub packets: u64,
}

impl Extent {
    /// The most packets that are counted: some minutes under valgrind.
    pub const MOST: u64 = 100_000_000;

    /// Whether so many packets can be counted.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.before <= Self::MOST && (1..=Self::MOST).contains(&self.packets)
    }
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
    /// Modules that ran as one, by number: the first has the packets and calls of all.
    #[serde(default)]
    pub folds: Vec<Vec<usize>>,
    /// By port: its name, packets that it gave, and that it took.
    #[serde(default)]
    pub ports: Vec<(String, u64, u64)>,
    /// By port: calls that gave packets, and that took some.
    #[serde(default)]
    pub port_calls: Vec<[u64; 2]>,
    /// By port: its kind.
    #[serde(default)]
    pub port_kinds: Vec<String>,
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

/// Instructions of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// What was run.
    pub served: Served,
    /// All instructions of all workers, ports and the engine included, without those of `checks`.
    pub all: u64,
    /// Instructions of checks that `core` makes of pointers where nothing is optimised, 0 in other builds. They take a
    /// branch by which of two blocks lies first in memory, and that is a matter of chance. Parts' figures have them.
    #[serde(skip)]
    pub checks: u64,
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
    /// Valgrind is not there.
    #[error("valgrind is not here: install it (apt install valgrind)")]
    NoValgrind,
    /// It cannot be run.
    #[error("valgrind cannot be run: {0}")]
    Valgrind(std::io::Error),
    /// The program is another one than at the beginning.
    #[error("{} was replaced while it was counted: build first, then count", .0.display())]
    Replaced(PathBuf),
    /// There is no thread to wait for it.
    #[error("no thread: {0}")]
    Thread(std::io::Error),
    /// What was counted failed.
    #[error("the run under valgrind failed: {0}")]
    Failed(String),
    /// It says something else than what it counted.
    #[error("the program that was counted is of another version: it does not say what it did")]
    Answer,
    /// Files.
    #[error("the count needs a temporary folder in {}: {}", tempfile::env::temp_dir().display(), .0)]
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
        let output = tool(folder.path(), program, pipeline, settings, first, extent)
            .output()
            .map_err(CountError::of_valgrind)?;
        if !output.status.success() {
            return Err(CountError::Failed(told(&output, "it says nothing")));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let served: Option<Served> = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
        let Some(served) = served else { return Err(CountError::Answer) };
        let profile = Profile::read(&folder.path().join(PROFILE))?;
        let counts = counts.get_or_insert_with(|| Counts {
            all: profile.total() - profile.own(CHECKS),
            checks: profile.own(CHECKS),
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

/// Runs `program count PIPELINE` under callgrind, with the profile in `folder`.
fn tool(folder: &Path, program: &Path, pipeline: &str, settings: &[String], first: usize, extent: Extent) -> Command {
    let mut tool = Command::new("valgrind");
    tool.args(["--quiet", "--tool=callgrind", "--compress-strings=no", "--vgdb=no"])
        .arg(format!("--callgrind-out-file={}", folder.join(PROFILE).display()))
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
        .env(PARENT, format!("{:010}", std::process::id()))
        .current_dir(folder)
        .stdin(Stdio::null());
    tool
}

impl CountError {
    fn of_valgrind(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::NoValgrind,
            _ => Self::Valgrind(error),
        }
    }
}

impl Served {
    /// The module that runs for the one of this name: itself, or the first of its fold.
    fn module(&self, name: &str) -> Option<usize> {
        let at = self.modules.iter().position(|(told, ..)| told == name)?;
        Some(self.folds.iter().find(|members| members.contains(&at)).map_or(at, |members| members[0]))
    }

    /// Whether another module runs for this one.
    #[must_use]
    pub fn is_run_by_another(&self, module: usize) -> bool {
        self.folds.iter().any(|members| members[1..].contains(&module))
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
        let port = |told: &str| kind.of(told) == name;
        let (instructions, packets) = match kind {
            Kind::Module => {
                let at = self.served.module(name)?;
                self.modules.get(at).map(|count| (*count, self.served.modules[at].1))
            }
            Kind::Receive => {
                ports().find(|((told, ..), _)| port(told)).map(|((_, given, _), count)| (count[0], *given))
            }
            Kind::Send => ports().find(|((told, ..), _)| port(told)).map(|((.., taken), count)| (count[1], *taken)),
            Kind::HandOver => None,
        }?;
        (packets > 0).then(|| instructions as f64 / packets as f64)
    }

    /// Packets per call of the module or port of this name, while it was counted.
    #[must_use]
    pub fn packets_per_call(&self, name: &str, kind: Kind) -> Option<f64> {
        let served = &self.served;
        let mut ports = served.ports.iter().zip(&served.port_calls);
        let mut port = || ports.find(|((told, ..), _)| kind.of(told) == name);
        let (packets, calls) = match kind {
            Kind::Module => served.module(name).map(|at| (served.modules[at].1, served.modules[at].2)),
            Kind::Receive => port().map(|((_, given, _), calls)| (*given, calls[0])),
            Kind::Send => port().map(|((.., taken), calls)| (*taken, calls[1])),
            Kind::HandOver => None,
        }?;
        (calls > 0).then(|| packets as f64 / calls as f64)
    }

    /// Instructions that are no module's and no port's.
    #[must_use]
    pub fn residue(&self) -> u64 {
        let known = self.modules.iter().chain(self.ports.iter().flatten()).sum();
        self.all.saturating_sub(known)
    }
}
