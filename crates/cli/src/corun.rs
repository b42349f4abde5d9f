//! `forebay profile --co-runs`: measures how much functions slow down when other functions run on other cores, and fits
//! models of the slowdown, which `place` uses.

mod report;
mod text;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use forebay_bench::{
    counting::{self, Extent},
    profile::{self, Key, Store},
};
use forebay_corun::{
    FitMethod, Machine, Records, Subject,
    machine::{Caches, caches, seats},
    model, plan,
    record::Seats,
    session::{self, Interrupted, Observer, Progress, Work},
    simulation, subject,
    synthetic::{Demand, levels},
};
use forebay_host::{Host, Topology, Tree};
use forebay_instance::choose;
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::Source;
use forebay_placement::Registry;
use forebay_units::Nanos;

use crate::format::counted;
use crate::progress::Bar;
use crate::source::{origin, source};
use crate::{Answer, args, printed};

pub(crate) use report::schema;

/// The default largest batch, in packets.
const BATCH: usize = 32;
/// The default measuring time per function.
const TIME: Nanos = Nanos(6_000_000_000);
/// The shortest time span of a run. Each run measures two spans of the same length.
const SHORTEST: Duration = Duration::from_millis(1);
/// The time that a run needs in addition to its two spans.
const BESIDE: Duration = Duration::from_millis(45);
/// Approximate duration of one cache simulation, in seconds.
const SIMULATION: f64 = 3.0;
/// The time between two writes of the records.
const KEEP: Duration = Duration::from_secs(1);

/// Measures the co-runs that are not stored, and prints models of all requested functions.
pub(crate) fn co_runs(arguments: &args::Profile) -> anyhow::Result<Answer> {
    let batch = arguments.batch.unwrap_or(BATCH);
    let subjects = subjects(arguments, batch)?;
    // Resolve the path before the current folder changes.
    let at = arguments.models.as_deref().map(std::path::absolute).transpose()?;
    // Catch signals before the folder is created, so that the folder is also removed after a signal.
    let stop = stop()?;
    let elsewhere = tempfile::Builder::new().prefix("forebay-").tempdir().context("a temporary folder")?;
    // A function's example may write files, and they must not land in the user's folder.
    if arguments.functions.iter().all(|name| !subject::is_pipeline(name)) {
        std::env::set_current_dir(elsewhere.path())?;
    }
    let report = measured(arguments, batch, &subjects, at, &stop)?;
    let mut out = printed::out();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        text::print(&report, &mut out)?;
    }
    if report.interrupted {
        let file = &report.runs;
        writeln!(printed::err(), "interrupted: runs are stored in {file}; the same command continues from there")?;
    }
    Ok(if report.interrupted || !report.missing.is_empty() { Answer::No } else { Answer::Yes })
}

/// Measures those modules of a pipeline whose profile keys (a function with its parameters) are among `keys`, and
/// stores models of these modules. Returns an error if one of them cannot be measured, or after a signal.
pub(crate) fn measure_modules(source: &Source, batch: usize, keys: &[String]) -> anyhow::Result<()> {
    let mut subjects = Subject::modules(source, None, batch)?;
    subjects.retain(|subject| keys.contains(&subject.key));
    let arguments = args::Profile {
        functions: Vec::new(),
        set: Vec::new(),
        again: false,
        batch: Some(batch),
        time: None,
        co_runs: true,
        passes: 3,
        lms: false,
        // Do not simulate caches: the process that would simulate them does not find the modules of this pipeline.
        no_count: true,
        models: None,
        json: false,
    };
    let stop = stop()?;
    let report = measured(&arguments, batch, &subjects, None, &stop)?;
    if report.interrupted {
        bail!("interrupted: runs are stored in {}; the same command continues from there", report.runs);
    }
    match report.missing.first_key_value() {
        Some((key, why)) => {
            let name = subjects.iter().find(|subject| subject.key == *key).map_or(key, |subject| &subject.name);
            bail!("{name}: {why}; valid runs are stored: the same command continues from there")
        }
        None => Ok(()),
    }
}

/// Measures the co-runs that are not stored, stores the models, and reports them. `models_at` is the file for the
/// models. If it is `None`, the models are stored where `place` finds them, except models by least mean squares, which
/// `place` cannot use.
fn measured(
    arguments: &args::Profile,
    batch: usize,
    subjects: &[Subject],
    models_at: Option<PathBuf>,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<report::CoRunsReport> {
    let tree = Tree::default();
    let seats = seats(&tree)?;
    let caches = caches(&tree, seats.subject);
    let key = Key::this(batch)?;
    let program = std::env::current_exe().context("this program's own file")?;
    let kept = StoredRecords::open(&key, &seats, arguments.again.then_some(subjects))?;
    let mut measured = Measured { kept, bar: Bar::new(), last: Instant::now() };
    let ended = measured.all(subjects, &seats, caches, &program, arguments, stop);
    measured.bar.end();
    measured.kept.write()?;
    let (failed, is_interrupted) = match ended {
        Ok(failed) => (failed, false),
        Err(Interrupted) => (Vec::new(), true),
    };
    let method = if arguments.lms { FitMethod::Lms } else { FitMethod::NonNegative };
    let records = &measured.kept.records;
    let models = model::models(records, caches.shared, method);
    // Write the file that `place` reads.
    let build = key.build.to_string();
    let mut file = None;
    if let Some(registry) = models.registry(&key.cpu, &build).filter(|registry| !registry.functions.is_empty()) {
        let at = match models_at {
            Some(file) => Some(file),
            // `place` cannot use models by least mean squares, so the stored models stay.
            None if arguments.lms => None,
            None => Some(Registry::file(&Store::folder("placement")?, &key.cpu, &build, batch)),
        };
        if let Some(at) = at {
            registry.write(&at)?;
            file = Some(at);
        }
    }
    let domains = Topology::read(&tree, &Host::read(&tree)).map_or(1, |topology| topology.domains().len());
    let requested: Vec<_> = subjects.iter().map(|subject| (subject.key.clone(), subject.name.clone())).collect();
    let report = report::CoRunsReport::new(records, &models, &requested, caches, domains, &failed, file.as_deref());
    Ok(report.ended(is_interrupted, &measured.kept.file))
}

/// Returns the requested functions; without any, all functions.
fn subjects(arguments: &args::Profile, batch: usize) -> anyhow::Result<Vec<Subject>> {
    let names = &arguments.functions;
    if let Some(pipeline) = names.iter().find(|name| subject::is_pipeline(name)) {
        if let Some(other) = names.iter().find(|name| *name != pipeline) {
            bail!("{pipeline}, {other}: name one pipeline, or functions");
        }
        let source = source(pipeline, &arguments.set)?;
        return Ok(Subject::modules(&source, origin(pipeline).as_deref(), batch)?);
    }
    if let Some(set) = arguments.set.first() {
        bail!(
            "--set {set}: functions are measured with the parameters of their examples: to use --set, name a pipeline"
        );
    }
    profile::known(names)?;
    let mut names = if names.is_empty() { profile::all() } else { names.clone() };
    names.sort();
    names.dedup();
    Ok(names.iter().map(|name| Subject::function(name, batch)).collect::<Result<_, _>>()?)
}

/// Returns a flag that the first SIGINT or SIGTERM sets; a second signal ends the process.
fn stop() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The order matters. On the first signal, the shutdown handler finds the flag not set and does nothing; then
        // the flag is set. On the second signal, it finds the flag set and ends the process.
        signal_hook::flag::register_conditional_shutdown(signal, 2, Arc::clone(&stop)).context("signals")?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("signals")?;
    }
    Ok(stop)
}

/// The records of co-runs, and the file that stores them.
struct StoredRecords {
    records: Records,
    file: PathBuf,
}

impl StoredRecords {
    /// Reads the stored records, without those of functions that are measured `again`.
    fn open(key: &Key, seats: &Seats, again: Option<&[Subject]>) -> anyhow::Result<Self> {
        let folder = Store::folder("co-runs")?;
        let file = Records::file(&folder, key);
        let empty = || Records::empty(key.clone(), seats.clone(), Tsc.frequency().hertz());
        let mut records = match Records::read(&file, key) {
            Ok(known) => known.unwrap_or_else(empty),
            Err(error) => {
                writeln!(printed::err(), "{error}: measuring everything again")?;
                empty()
            }
        };
        if records.seats != *seats {
            let (before, now) = (records.seats.subject, seats.subject);
            writeln!(printed::err(), "runs on core {before} are not valid on core {now}: measuring everything again")?;
            records = empty();
        }
        for subject in again.into_iter().flatten() {
            records.functions.remove(&subject.key);
        }
        let kept = Self { records, file };
        // Check that the file can be written, before measuring for minutes.
        kept.write()?;
        Ok(kept)
    }

    fn write(&self) -> anyhow::Result<()> {
        Ok(self.records.write(&self.file)?)
    }
}

/// A measurement in progress.
struct Measured {
    kept: StoredRecords,
    bar: Bar,
    /// The time of the last write.
    last: Instant,
}

impl Measured {
    /// Makes all runs and simulations that are not stored. Returns the functions that cannot run, with the reasons.
    fn all(
        &mut self,
        subjects: &[Subject],
        seats: &Seats,
        caches: Caches,
        program: &Path,
        arguments: &args::Profile,
        stop: &Arc<AtomicBool>,
    ) -> Result<Vec<(String, String)>, Interrupted> {
        let [own, shared] = [caches.own, caches.shared].map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX / 8));
        let demands = levels(own, shared);
        let (cores, passes) = (seats.competitors.len(), usize::from(arguments.passes));
        let work = Work { subjects, demands: &demands, cores, passes };
        let keys: Vec<_> = subjects.iter().map(|subject| subject.key.clone()).collect();
        let span = span(arguments, &keys, &demands, cores);
        let mut records = self.kept.records.clone();
        let missing = missing(&work, &keys, &records);
        if missing > 0 {
            // Lock the cores, so that pipelines that start later choose other cores. A pipeline that already uses one
            // of these cores disturbs the runs, and the runs disturb this pipeline.
            let held =
                choose(&seats.competitors.iter().chain([&seats.subject]).map(|core| Some(*core)).collect::<Vec<_>>());
            if let Some(core) = held.as_ref().ok().and_then(|held| held.iter().find(|core| held.is_shared(**core))) {
                self.bar.note(&format!("another pipeline uses core {core}: measurements that it disturbs are void"));
            }
            self.bar.begin(plan::runs(&keys, &demands, cores, passes));
            let seconds = missing as f64 * (2 * span + BESIDE).as_secs_f64();
            self.bar.expect(&format!("measuring {}", counted(missing as u64, "run")), seconds);
            // Synthetic competitors also stream through memory that should not be in the cache. If this memory has four
            // times the cache's size, hardly any line is in the cache when it is read.
            let beyond = (4 * shared).clamp(1 << 20, 256 << 20);
            let mut machine = Machine::new(seats.clone(), subjects, &demands, beyond, span, Arc::clone(stop));
            let failed = session::measure(&work, &mut records, &mut machine, stop, self);
            self.kept.records.clone_from(&records);
            let failed = failed?;
            self.simulate(subjects, caches, program, arguments.no_count, stop)?;
            return Ok(failed);
        }
        self.simulate(subjects, caches, program, arguments.no_count, stop)?;
        Ok(Vec::new())
    }

    /// Makes the cache simulations that are not stored. With `without`, records instead that they were skipped.
    fn simulate(
        &mut self,
        subjects: &[Subject],
        caches: Caches,
        program: &Path,
        without: bool,
        stop: &AtomicBool,
    ) -> Result<(), Interrupted> {
        let mut records = self.kept.records.clone();
        let missing = simulation::missing(subjects, &records).len();
        if missing == 0 {
            return Ok(());
        }
        if without {
            let why = "skipped by --no-count".to_owned();
            self.kept.records.unavailable.insert(simulation::UNAVAILABLE.to_owned(), why);
            return Ok(());
        }
        self.bar.begin(missing);
        let what = format!("simulating caches for {}", counted(missing as u64, "function"));
        self.bar.expect(&what, missing as f64 * SIMULATION);
        let count = |subject: &Subject, sizes| match &subject.counted {
            Some((pipeline, sets)) => counting::misses(program, pipeline, sets, Extent::default(), sizes, stop),
            None => Err(counting::CountError::Failed("a pipeline from a pipe cannot be read twice".to_owned())),
        };
        let ended = simulation::simulate(subjects, caches, &mut records, &count, stop, self);
        self.kept.records = records;
        ended
    }
}

impl Observer for Measured {
    fn at(&mut self, progress: Progress<'_>) {
        self.bar.at(progress.done, progress.function);
    }

    fn keep(&mut self, records: &Records) {
        if self.last.elapsed() >= KEEP {
            self.last = Instant::now();
            // The last write reports errors.
            let _ = records.write(&self.kept.file);
        }
    }
}

/// Returns the length of a span with which all runs of a function together take the requested time (`--time`).
fn span(arguments: &args::Profile, keys: &[String], demands: &[Demand], cores: usize) -> Duration {
    let runs = plan::competitors(keys, 0, demands, cores).len().max(1) * usize::from(arguments.passes);
    let time = Duration::from_nanos(arguments.time.unwrap_or(TIME).0);
    let run = time / u32::try_from(runs).unwrap_or(u32::MAX);
    (run.saturating_sub(BESIDE) / 2).max(SHORTEST)
}

/// Counts the runs that are not stored.
fn missing(work: &Work<'_>, keys: &[String], records: &Records) -> usize {
    let mut missing = 0;
    for (index, key) in keys.iter().enumerate() {
        let sets = plan::competitors(keys, index, work.demands, work.cores);
        missing += (0..work.passes)
            .flat_map(|pass| sets.iter().map(move |set| (set, pass)))
            .filter(|(set, pass)| !records.has(key, set, *pass))
            .count();
    }
    missing
}
