//! `forebay profile --co-runs`: how much slower functions run beside each other, and models of that for `place`.

mod report;
mod text;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
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
use forebay_lean::{
    counting::{self, Extent},
    profile::{self, Key, Store},
};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::Source;
use forebay_placement::Registry;
use forebay_units::Nanos;

use crate::format::counted;
use crate::progress::Bar;
use crate::source::{origin, source};
use crate::{Answer, args, printed};

pub(crate) use report::schema;

/// The largest batch, where no other is asked for.
const BATCH: usize = 32;
/// How long each function is measured, where nothing else is said.
const TIME: Nanos = Nanos(6_000_000_000);
/// The shortest span; and what a run takes beside its two spans.
const SHORTEST: Duration = Duration::from_millis(1);
const BESIDE: Duration = Duration::from_millis(45);
/// How long a simulation of caches takes, about.
const SIMULATION: f64 = 3.0;
/// The time between two writes of what has been measured.
const KEEP: Duration = Duration::from_secs(1);

/// Measures co-runs that are not known, and prints models of all that was asked for.
pub(crate) fn co_runs(arguments: &args::Profile) -> anyhow::Result<Answer> {
    let batch = arguments.batch.unwrap_or(BATCH);
    let subjects = subjects(arguments, batch)?;
    // Before the current folder changes.
    let at = arguments.models.as_deref().map(std::path::absolute).transpose()?;
    // Before it can be ended by a signal: the folder is gone in the end.
    let stop = stop()?;
    let elsewhere = tempfile::Builder::new().prefix("forebay-").tempdir().context("a temporary folder")?;
    // A function's example may write files; they are not the user's.
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
        writeln!(printed::err(), "interrupted: runs are kept in {file}; the same command goes on from there")?;
    }
    Ok(if report.interrupted || !report.missing.is_empty() { Answer::No } else { Answer::Yes })
}

/// Measures the modules of a pipeline whose profile keys are among `keys`, and keeps their models.
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
        // Another process, which counts, does not find the modules.
        no_count: true,
        models: None,
        json: false,
    };
    let stop = stop()?;
    let report = measured(&arguments, batch, &subjects, None, &stop)?;
    if report.interrupted {
        bail!("interrupted: runs are kept in {}; the same command goes on from there", report.runs);
    }
    match report.missing.first_key_value() {
        Some((key, why)) => {
            let name = subjects.iter().find(|subject| subject.key == *key).map_or(key, |subject| &subject.name);
            bail!("{name}: {why}; runs that count are kept: the same command goes on from there")
        }
        None => Ok(()),
    }
}

/// Measures co-runs that are not known, keeps the models, and reports them.
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
    let kept = Kept::open(&key, &seats, arguments.again.then_some(subjects))?;
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
    // What `place` looks for.
    let build = key.build.to_string();
    let mut file = None;
    if let Some(registry) = models.registry(&key.cpu, &build).filter(|registry| !registry.functions.is_empty()) {
        let at = match models_at {
            Some(file) => Some(file),
            // `place` cannot take them: those that are there stay.
            None if arguments.lms => None,
            None => Some(Registry::file(&Store::folder("placement")?, &key.cpu, &build, batch)),
        };
        if let Some(at) = at {
            registry.write(&at)?;
            file = Some(at);
        }
    }
    let domains = Topology::read(&tree, &Host::read(&tree)).map_or(1, |topology| topology.domains().len());
    let asked: Vec<_> = subjects.iter().map(|subject| (subject.key.clone(), subject.name.clone())).collect();
    let report = report::CoRunsReport::new(records, &models, &asked, caches, domains, &failed, file.as_deref());
    Ok(report.ended(is_interrupted, &measured.kept.file))
}

/// The functions that were asked for; all of them where none was.
fn subjects(arguments: &args::Profile, batch: usize) -> anyhow::Result<Vec<Subject>> {
    let names = &arguments.functions;
    if let Some(pipeline) = names.iter().find(|name| subject::is_pipeline(name)) {
        if let Some(other) = names.iter().find(|name| *name != pipeline) {
            bail!("{pipeline}, {other}: allowed is one pipeline, or functions");
        }
        let source = source(pipeline, &arguments.set)?;
        return Ok(Subject::modules(&source, origin(pipeline).as_deref(), batch)?);
    }
    if let Some(set) = arguments.set.first() {
        bail!("--set {set}: functions are measured with the parameters of their examples: name a pipeline");
    }
    profile::known(names)?;
    let mut names = if names.is_empty() { profile::all() } else { names.clone() };
    names.sort();
    names.dedup();
    Ok(names.iter().map(|name| Subject::function(name, batch)).collect::<Result<_, _>>()?)
}

/// Set by the first SIGINT or SIGTERM; a second one ends the process.
fn stop() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // In this order: the first signal finds the flag not yet set.
        signal_hook::flag::register_conditional_shutdown(signal, 2, Arc::clone(&stop)).context("signals")?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("signals")?;
    }
    Ok(stop)
}

/// Records, and the file that they are kept in.
struct Kept {
    records: Records,
    file: PathBuf,
}

impl Kept {
    /// What is known, without what is to be measured `again`.
    fn open(key: &Key, seats: &Seats, again: Option<&[Subject]>) -> anyhow::Result<Self> {
        let folder = Store::folder("co-runs")?;
        let file = Records::file(&folder, key);
        let empty = || Records::empty(key.clone(), seats.clone(), Tsc.frequency().hertz());
        let mut records = match Records::read(&file, key) {
            Ok(known) => known.unwrap_or_else(empty),
            Err(error) => {
                writeln!(printed::err(), "{error}: everything is measured again")?;
                empty()
            }
        };
        if records.seats != *seats {
            let (before, now) = (records.seats.subject, seats.subject);
            writeln!(printed::err(), "runs on core {before} do not count on core {now}: everything is measured again")?;
            records = empty();
        }
        for subject in again.into_iter().flatten() {
            records.functions.remove(&subject.key);
        }
        let kept = Self { records, file };
        // Before minutes are spent.
        kept.write()?;
        Ok(kept)
    }

    fn write(&self) -> anyhow::Result<()> {
        Ok(self.records.write(&self.file)?)
    }
}

/// A measurement that goes on.
struct Measured {
    kept: Kept,
    bar: Bar,
    /// When records were last written.
    last: Instant,
}

impl Measured {
    /// Makes all runs and simulations. By function that cannot run: why.
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
            // The cores of other pipelines of this user are disturbed, and disturb.
            let held =
                choose(&seats.competitors.iter().chain([&seats.subject]).map(|core| Some(*core)).collect::<Vec<_>>());
            if let Some(core) = held.as_ref().ok().and_then(|held| held.iter().find(|core| held.is_shared(**core))) {
                self.bar.note(&format!("core {core} runs another pipeline: runs that it disturbs do not count"));
            }
            self.bar.begin(plan::runs(&keys, &demands, cores, passes));
            let seconds = missing as f64 * (2 * span + BESIDE).as_secs_f64();
            self.bar.expect(&format!("measuring {}", counted(missing as u64, "run")), seconds);
            // Beyond four times the cache hardly a line is found again.
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
            let why = "--no-count left it out".to_owned();
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
            // The last write reports what is wrong.
            let _ = records.write(&self.kept.file);
        }
    }
}

/// The length of a span: so that each function takes the time that was asked for.
fn span(arguments: &args::Profile, keys: &[String], demands: &[Demand], cores: usize) -> Duration {
    let runs = plan::competitors(keys, 0, demands, cores).len().max(1) * usize::from(arguments.passes);
    let time = Duration::from_nanos(arguments.time.unwrap_or(TIME).0);
    let run = time / u32::try_from(runs).unwrap_or(u32::MAX);
    (run.saturating_sub(BESIDE) / 2).max(SHORTEST)
}

/// Runs that are still to be made.
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
