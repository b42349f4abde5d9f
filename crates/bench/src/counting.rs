//! Counts instructions per packet: runs the pipeline on a fixed input, in simulated time, under callgrind.
//!
//! [`count`] runs this program under valgrind; that process calls [`serve`], which runs the counted code. Time is
//! simulated and hash seeds are fixed, so every run executes the same instructions. A busy chain is counted: sources
//! give whole batches, regardless of their configured rate, and idle turns are left out.
//!
//! Some properties of the environment would change the counts and are excluded. The C library chooses its copy routines
//! by the processor and its caches; [`TUNABLES`] fixes the choice. The number of instructions of a copy depends on the
//! alignment of addresses. On the first thread, stack and heap addresses depend on the environment, the arguments and
//! file names. So the environment contains only the few variables that are needed, and the counted code runs on a
//! thread of its own, whose stack and heap begin at whole pages. The address of a block on that heap would still depend
//! on all earlier blocks. Therefore the allocator aligns each block that is long enough to be copied in a loop
//! ([`allocator`](crate::allocator)).

mod build;
mod caches;
mod serve;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::callgrind::{CallgrindError, InstructionProfile};
use crate::named::SYMBOLS;
use crate::program::{PARENT, last_lines};
use crate::ticks::PartType;

pub use build::{CountedBuild, OtherBuild};
pub use caches::{Misses, misses};
pub use serve::serve;

/// Makes the C library copy and compare with AVX2, with fixed cache sizes and without repeated string instructions
/// (callgrind would count them byte by byte). The comparison with MOVBE is disabled too: that routine takes another
/// path if an operand is near the end of a page, and the addresses of small blocks are not fixed.
const TUNABLES: &str = "glibc.cpu.hwcaps=-ERMS,-FSRM,-RTM,-MOVBE,-AVX512F,-AVX512VL,-AVX512BW:\
    glibc.cpu.x86_data_cache_size=0x8000:glibc.cpu.x86_shared_cache_size=0x100000:\
    glibc.cpu.x86_non_temporal_threshold=0xc0000";
/// The environment variables that valgrind needs.
const ENVIRONMENT: [&str; 3] = ["PATH", "TMPDIR", "VALGRIND_LIB"];
/// The pattern of the counted function's symbol. The function runs one turn (`counted` in `serve`). Older builds have
/// it in another module.
const INSIDE: &str = "*::counting::*counted*";

/// The name of the profile's file.
const PROFILE: &str = "profile";

/// The symbol prefix of pointer checks in builds without optimisation.
const CHECKS: &str = "core::ub_checks::";

/// The number of packets to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Packets that enter before counting begins: tables fill, and one-time work is done.
    pub before: u64,
    /// The least number of packets that enter while counting.
    pub packets: u64,
}

impl Extent {
    /// The largest number of packets that can be counted. Counting them takes some minutes under valgrind.
    pub const MOST: u64 = 100_000_000;

    /// True if this number of packets can be counted.
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

/// The report of the counted process about one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Packets that entered while instructions were counted.
    pub packets: u64,
    /// By module: its name, packets and calls.
    pub modules: Vec<(String, u64, u64)>,
    /// Groups of modules that ran as one (folded), by index. The first module of a group has the packets and calls of
    /// the whole group.
    #[serde(default)]
    pub folds: Vec<Vec<usize>>,
    /// By port: its name, received packets and sent packets.
    #[serde(default)]
    pub ports: Vec<(String, u64, u64)>,
    /// By port: receive calls that returned packets, and send calls.
    #[serde(default)]
    pub port_calls: Vec<[u64; 2]>,
    /// By port: its type.
    #[serde(default)]
    pub port_kinds: Vec<String>,
    /// By module: its function.
    #[serde(default)]
    pub functions: Vec<String>,
    /// The largest batch.
    #[serde(default)]
    pub batch: usize,
    /// The counted program.
    #[serde(default)]
    pub build: CountedBuild,
}

/// The instruction counts of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// The report of the counted process.
    pub served: Served,
    /// All instructions of all workers, ports and the engine included, without `checks`.
    pub all: u64,
    /// Instructions of pointer checks of `core` in builds without optimisation; 0 in other builds. The checks branch on
    /// the order of two addresses, which is not fixed. So `all` does not include these instructions. The counts of
    /// modules and ports include them.
    #[serde(skip)]
    pub checks: u64,
    /// By module: instructions of its function's calls.
    pub modules: Vec<u64>,
    /// By port: instructions of receive and send calls.
    #[serde(default)]
    pub ports: Vec<[u64; 2]>,
    /// The instruction set of the program and of the emulated processor.
    pub instruction_set: String,
}

/// Instructions cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// Valgrind is missing.
    #[error("valgrind is not installed: install it (apt install valgrind)")]
    NoValgrind,
    /// Valgrind cannot be started.
    #[error("valgrind cannot be run: {0}")]
    Valgrind(std::io::Error),
    /// The program file was replaced after the beginning.
    #[error("{} was replaced while it was counted: build first, then count", .0.display())]
    Replaced(PathBuf),
    /// No thread can be started to wait for the counted process.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// The counted process failed.
    #[error("the run under valgrind failed: {0}")]
    Failed(String),
    /// The output of the counted process is not the expected report.
    #[error("the counted program did not print the expected report: count a program of this version of Forebay")]
    Answer,
    /// A file cannot be read or written.
    #[error("the count needs a temporary folder in {}: {}", tempfile::env::temp_dir().display(), .0)]
    Io(#[from] std::io::Error),
    /// The profile cannot be used.
    #[error(transparent)]
    Profile(#[from] CallgrindError),
}

/// Counts a pipeline: runs `program count PIPELINE`, with settings, under callgrind. Repeats the run until each module
/// and port was counted, because one run can distinguish only some of them. The program must call [`serve`]. Relative
/// file names refer to a temporary folder that is removed afterwards.
///
/// # Errors
/// [`CountError`].
pub fn count(program: &Path, pipeline: &str, settings: &[String], extent: Extent) -> Result<Counts, CountError> {
    let mut counts: Option<Counts> = None;
    loop {
        let first = counts.as_ref().map_or(0, Counts::counted_parts);
        let folder = tempfile::tempdir()?;
        let output = tool(folder.path(), program, pipeline, settings, first, extent)
            .output()
            .map_err(CountError::of_valgrind)?;
        if !output.status.success() {
            return Err(CountError::Failed(last_lines(&output, "no output")));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let served: Option<Served> = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
        let Some(served) = served else { return Err(CountError::Answer) };
        let profile = InstructionProfile::read(&folder.path().join(PROFILE))?;
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
                counts
                    .ports
                    .push(["receive", "send"].map(|direction| profile.called_by(&format!("{symbol}{direction}"))));
            }
        }
        if counts.counted_parts() >= parts {
            return Ok(counts.clone());
        }
    }
}

/// Returns the command that runs `program count PIPELINE` under callgrind, with the profile in `folder`. `first` is the
/// index of the first module or port that this run counts separately: modules come first, then ports.
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
        // With leading zeros, so that the size of the environment does not depend on the process number.
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
    /// Returns the index of the module that runs for the module of this name: itself, or the first one of its fold.
    fn module(&self, name: &str) -> Option<usize> {
        let at = self.modules.iter().position(|(module, ..)| module == name)?;
        Some(self.folds.iter().find(|members| members.contains(&at)).map_or(at, |members| members[0]))
    }

    /// True if this module (an index in `modules`) runs as part of another module, the first one of its fold.
    #[must_use]
    pub fn is_run_by_another(&self, module: usize) -> bool {
        self.folds.iter().any(|members| members[1..].contains(&module))
    }
}

impl Counts {
    /// Returns the number of modules and ports that have been counted.
    fn counted_parts(&self) -> usize {
        self.modules.len() + self.ports.len()
    }

    /// Returns instructions per packet of the module or port of this name
    /// ([`TimedPart::name`](crate::ticks::TimedPart::name)). `None` for a hand-over, for an unknown name, or without
    /// packets.
    #[must_use]
    pub fn per_packet(&self, name: &str, kind: PartType) -> Option<f64> {
        let ports = || self.served.ports.iter().zip(&self.ports);
        let is_named = |port: &str| kind.part_name(port) == name;
        let (instructions, packets) = match kind {
            PartType::Module => {
                let at = self.served.module(name)?;
                self.modules.get(at).map(|count| (*count, self.served.modules[at].1))
            }
            PartType::Receive => {
                ports().find(|((port, ..), _)| is_named(port)).map(|((_, given, _), count)| (count[0], *given))
            }
            PartType::Send => {
                ports().find(|((port, ..), _)| is_named(port)).map(|((.., taken), count)| (count[1], *taken))
            }
            PartType::HandOver => None,
        }?;
        (packets > 0).then(|| instructions as f64 / packets as f64)
    }

    /// Returns the packets per call of the module or port of this name during the count. `None` as for
    /// [`per_packet`](Self::per_packet), or without calls.
    #[must_use]
    pub fn packets_per_call(&self, name: &str, kind: PartType) -> Option<f64> {
        let served = &self.served;
        let mut ports = served.ports.iter().zip(&served.port_calls);
        let mut port = || ports.find(|((port, ..), _)| kind.part_name(port) == name);
        let (packets, calls) = match kind {
            PartType::Module => served.module(name).map(|at| (served.modules[at].1, served.modules[at].2)),
            PartType::Receive => port().map(|((_, given, _), calls)| (*given, calls[0])),
            PartType::Send => port().map(|((.., taken), calls)| (*taken, calls[1])),
            PartType::HandOver => None,
        }?;
        (calls > 0).then(|| packets as f64 / calls as f64)
    }

    /// Returns the instructions that belong to no module and no port.
    #[must_use]
    pub fn residue(&self) -> u64 {
        let known = self.modules.iter().chain(self.ports.iter().flatten()).sum();
        self.all.saturating_sub(known)
    }
}
