//! `forebay place`: places the functions of chains on cores, and prints the result as text, a picture, JSON or a
//! pipeline.

mod apply;
mod models;
mod picture;
mod text;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use forebay_graph::files::{read_text, replace, replace_private};
use forebay_models::placement::From;
use forebay_pipeline::Source;
use forebay_placement::answer::{Answer as Placed, AnswerOptions, answer};
use forebay_placement::chains::{Chains, is_same_file};
use forebay_placement::earlier::EarlierPlacement;
use forebay_placement::pipeline::pipeline;
use forebay_placement::problem::{PoseError, pose};
use forebay_placement::search::{SearchEffort, search_nearby, search_with_headroom};
use forebay_placement::server::Server;
use forebay_units::wording;

use crate::format::counted;
use crate::progress::Bar;
use crate::{Answer, args, printed, topology};

/// Maximum size of a placement file, in bytes.
const MOST: u64 = 64 << 20;

/// Places chains, and prints the placement. Returns `No` if chains do not fit or an objective is missed.
pub(crate) fn place(arguments: &args::PlaceOptions) -> anyhow::Result<Answer> {
    let chains = Chains::read(&crate::source::source(&arguments.chains, &arguments.set)?)?;
    refuse_inputs(arguments, &chains)?;
    let root = arguments.root.as_deref();
    let (_, machine) = topology::read("place: --topology", &arguments.topology, root)?;
    let server = Server::of(&machine, arguments.smt);
    let keys: BTreeMap<_, _> =
        forebay_bench::profile::keys(&chains.modules()).into_iter().map(|(module, _, key)| (module, key)).collect();
    let objective = arguments.objective.into();
    // Measure missing models only if the topology is this machine with one domain: stored models cannot describe
    // packets in the memory of another domain. With `--apply`, a running pipeline would disturb the measurement.
    let measures = !arguments.apply
        && server.domains.len() == 1
        && !arguments.no_profile
        && arguments.models.is_empty()
        && arguments.topology == "host"
        && root.is_none();
    let registry =
        if measures { models::measured(&chains, &keys)? } else { models::read(&arguments.models, chains.batch)? };
    let posed = pose(&chains, &server, &registry, &keys, objective).map_err(|error| match error {
        PoseError::Models(missing) => models::missing(&arguments.chains, &missing, &registry, chains.batch),
        error => anyhow::anyhow!("{}: {error}", arguments.chains),
    })?;
    // Connect before signals are caught: waiting for a pipeline that does not respond must stay interruptible.
    let mut running = apply::RunningPlacement::of(arguments)?;
    let limit = Duration::from_nanos(arguments.limit.0);
    let patience = Patience::new(limit, "searching; Ctrl-C takes the best placement so far")?;
    let is_over = || patience.is_over();
    let algorithm = arguments.search.into();
    let earlier = match (&running, &arguments.from) {
        (Some(running), _) => Some(EarlierPlacement::running(&chains, &server, &running.cores())),
        (None, from) => from.as_deref().map(|file| earlier(file, &chains, &server)).transpose()?,
    };
    let from =
        earlier.as_ref().map(|earlier| From { ways: &earlier.ways, most: arguments.moves.unwrap_or(usize::MAX) });
    // Without `--moves`, search for the best placement. Among equally good placements, take one that needs few moves.
    let from = from.filter(|from| from.most < usize::MAX);
    let effort = SearchEffort { algorithm, objective, seed: arguments.seed, is_over: &is_over, from };
    let outcome = match &earlier {
        Some(earlier) if from.is_none() => search_nearby(&posed.problem, &effort, &earlier.ways),
        _ => search_with_headroom(&posed.problem, &effort),
    };
    let outcome = outcome.with_context(|| format!("place: {}", arguments.chains))?;
    let patience = patience.next("explaining moves; Ctrl-C skips the remaining moves");
    let options = AnswerOptions {
        topology: &arguments.topology,
        objective,
        algorithm,
        rate_coupled: arguments.rate_coupled,
        explain: arguments.explain,
        earlier: earlier.as_ref(),
        is_over: &|| patience.is_over(),
    };
    let mut placed = answer(&chains, &server, &registry, &posed, &outcome, options)?;
    if let Some(file) = &arguments.svg {
        let picture = picture::nest(&placed).svg()?;
        replace(file, picture.as_bytes()).with_context(|| format!("place: --svg {}", file.display()))?;
    }
    if let Some(file) = &arguments.write {
        write(&chains, &placed, arguments.spare, file).with_context(|| format!("place: --write {}", file.display()))?;
        let (placed, all) = (placed.chains.len(), counted(chains.chains.len() as u64, "chain"));
        writeln!(printed::err(), "wrote {}: the pipeline of {placed} of {all}", file.display())?;
    }
    if let (Some(running), Some(earlier)) = (&mut running, &earlier) {
        if patience.stop.swap(true, Ordering::Relaxed) {
            bail!("place: --apply: interrupted: nothing has moved");
        }
        // The flag is now set. So the next Ctrl-C ends the process, also while the pipeline does not respond.
        placed.applied = running.apply(&chains, &placed, earlier, arguments)?;
    }
    let mut out = printed::out();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&placed)?)?;
    } else {
        write!(out, "{}", text::text(&placed, arguments.apply))?;
    }
    if let Some(missing) = placed.applied.as_ref().map(|applied| applied.missing).filter(|missing| *missing != 0) {
        bail!("{} unaccounted for: this is a defect of Forebay", wording::counted(missing, "packet"));
    }
    let is_kept = placed.rejected.is_empty() && placed.chains.iter().all(|chain| chain.keeps_objective);
    Ok(if is_kept { Answer::Yes } else { Answer::No })
}

/// The time limit of a step. Ctrl-C ends the step earlier. Shows progress after one second.
struct Patience {
    begin: Instant,
    limit: Duration,
    /// The text beside the progress bar.
    what: &'static str,
    /// Set by Ctrl-C. All steps share it.
    stop: Arc<AtomicBool>,
    bar: RefCell<Option<Bar>>,
}

impl Patience {
    fn new(limit: Duration, what: &'static str) -> anyhow::Result<Self> {
        let stop = crate::run::stop_on_signals().context("signals")?;
        Ok(Self { begin: Instant::now(), limit, what, stop, bar: RefCell::new(None) })
    }

    /// Returns the limit of the next step, which has the same duration. If Ctrl-C was pressed, the next step is over at
    /// once.
    fn next(self, what: &'static str) -> Self {
        let (limit, stop) = (self.limit, Arc::clone(&self.stop));
        Self { begin: Instant::now(), limit, what, stop, bar: RefCell::new(None) }
    }

    /// Returns true if the time is over or Ctrl-C was pressed. Updates the progress bar.
    fn is_over(&self) -> bool {
        const SHORT: Duration = Duration::from_secs(1);
        let steps = |time: Duration| usize::try_from(time.as_millis() / 100).unwrap_or(usize::MAX);
        let elapsed = self.begin.elapsed();
        if elapsed > SHORT && elapsed < self.limit {
            let mut bar = self.bar.borrow_mut();
            let bar = bar.get_or_insert_with(|| {
                let mut bar = Bar::new();
                bar.part("place");
                bar.begin(steps(self.limit));
                bar
            });
            bar.at(steps(elapsed), self.what);
        }
        elapsed >= self.limit || self.stop.load(Ordering::Relaxed)
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get_mut() {
            bar.end();
        }
    }
}

/// Refuses to overwrite a file that the command reads.
fn refuse_inputs(arguments: &args::PlaceOptions, chains: &Chains) -> anyhow::Result<()> {
    let written = [("--write", &arguments.write), ("--svg", &arguments.svg)];
    for (option, file) in written.into_iter().filter_map(|(option, file)| Some((option, file.as_ref()?))) {
        let is_input = |other: &Path| is_same_file(file, other);
        let what = if is_input(Path::new(&arguments.chains)) {
            "the file of chains"
        } else if arguments.models.iter().any(|models| is_input(models)) {
            "a file of models"
        } else if arguments.from.as_deref().is_some_and(is_input) {
            "the placement of --from"
        } else if is_input(Path::new(&arguments.topology)) {
            "the topology"
        } else if chains.reads_file(file) {
            "a file that a module reads"
        } else {
            continue;
        };
        bail!("place: {option} {}: the file is {what}; name another file", file.display());
    }
    if let (Some(write), Some(svg)) = (&arguments.write, &arguments.svg)
        && (write == svg || is_same_file(write, svg))
    {
        bail!("place: --svg {}: --write names the same file; name two files", svg.display());
    }
    Ok(())
}

/// Reads the placement in the file of `--from`.
fn earlier(file: &Path, chains: &Chains, server: &Server) -> anyhow::Result<EarlierPlacement> {
    let what = || format!("place: --from {}", file.display());
    let bytes = read_text(file, MOST).with_context(what)?;
    EarlierPlacement::read(&String::from_utf8_lossy(&bytes), chains, server).with_context(what)
}

/// Writes the pipeline of a placement to a file. First makes the checks of `forebay check`. If the pipeline contains
/// secrets, only the user can read the file.
fn write(chains: &Chains, placed: &Placed, spare: bool, file: &Path) -> anyhow::Result<()> {
    let written = pipeline(chains, placed, spare)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let name = file.display().to_string();
    if let Err(problems) = forebay_pipeline::check(&Source::new(&written.text, &name, folder)) {
        bail!("the pipeline would not be valid; names of files in it are relative to its own folder:\n{problems}");
    }
    let put = if written.has_secrets { replace_private } else { replace };
    Ok(put(file, written.text.as_bytes())?)
}
