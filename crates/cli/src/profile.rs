//! `forebay profile`: what calls of functions cost on this machine, measured or known.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;

use anyhow::bail;
use forebay_corun::subject::is_pipeline;
use forebay_lean::profile::{self, Effort, Found, Key, Pipeline, Profile, Store, StoreError};
use forebay_units::Nanos;
use serde::Serialize;

use crate::format::{Align, counted, known};
use crate::progress::Bar;
use crate::{Answer, args, format, printed};

/// Columns that a module's name takes at the most.
const NAME: usize = 22;
/// The largest batch of functions, where no other is asked for.
const BATCH: usize = 32;
/// How long each function is measured, where nothing else is said.
const TIME: Nanos = Nanos(600_000_000);
/// Seconds from which on it is said how long measuring takes.
const WORTH_SAYING: f64 = 1.0;
/// The share of the time for which the machine may be elsewhere before that is reported.
const WORTH_TELLING: f64 = 0.01;

/// Measures what is not known, and prints all that was asked for.
pub(crate) fn profile(arguments: &args::Profile) -> anyhow::Result<Answer> {
    if arguments.co_runs {
        return crate::corun::co_runs(arguments);
    }
    if let Some(pipeline) = arguments.functions.iter().find(|name| is_pipeline(name)) {
        if let Some(other) = arguments.functions.iter().find(|name| *name != pipeline) {
            bail!("{pipeline}, {other}: allowed is one pipeline, or functions");
        }
        return of_pipeline(pipeline, arguments);
    }
    if let Some(set) = arguments.set.first() {
        bail!("--set {set}: functions are measured with the parameters of their examples: name a pipeline");
    }
    let batch = arguments.batch.unwrap_or(BATCH);
    profile::known(&arguments.functions)?;
    let names: BTreeSet<_> =
        if arguments.functions.is_empty() { profile::all() } else { arguments.functions.clone() }.into_iter().collect();
    let (store, mut profile) = known_before(batch)?;
    let unknown = |name: &&String| arguments.again || !profile.functions.contains_key(*name);
    let wanted: Vec<_> = names.iter().filter(unknown).cloned().collect();
    if !wanted.is_empty() {
        // A function may write files; they are not the user's.
        let elsewhere = crate::temporary::folder()?;
        std::env::set_current_dir(elsewhere.path())?;
        let effort = Effort { time: Duration::from_nanos(arguments.time.unwrap_or(TIME).0), ..Effort::new(batch) };
        let mut bar = begin(&effort, wanted.len(), "function");
        let measured = profile.measure(&wanted, &effort, &mut |it| bar.at(it.done, it.function));
        bar.end();
        if let Some(store) = &store {
            or_report(profile.keep(store), "what was measured is not kept");
        }
        measured?;
    }
    let at = store.map(|store| store.file(&profile.key));
    profile.functions.retain(|name, _| names.contains(name));
    let mut out = printed::out();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&profile)?)?;
        return Ok(Answer::Yes);
    }
    print(&profile, &mut out)?;
    let here = counted(wanted.len() as u64, "function");
    let before = names.len() - wanted.len();
    let file = at.filter(|_| before > 0).map(|file| format!(" from {} (--again measures)", file.display()));
    writeln!(out, "{here} measured, {before} known{}.", file.unwrap_or_default())?;
    Ok(Answer::Yes)
}

/// Measures the modules of a pipeline with their parameters, and prints what each costs.
fn of_pipeline(name: &str, arguments: &args::Profile) -> anyhow::Result<Answer> {
    let pipeline = Pipeline::new(crate::source::source(name, &arguments.set)?, arguments.batch)?;
    let batch = pipeline.batch;
    if !Effort::BATCHES.contains(&batch) {
        let (least, most) = (Effort::BATCHES.start(), Effort::BATCHES.end());
        bail!("{name}: its largest batch is {batch}: allowed are {least} to {most}; `--batch N` measures others");
    }
    let (store, mut profile) = known_before(batch)?;
    let wanted = pipeline.wanted(&profile, arguments.again);
    let mut found = Found::default();
    if !wanted.is_empty() {
        for (port, kind) in &pipeline.replaced {
            writeln!(printed::err(), "port '{port}' is of {kind}: generated packets come instead")?;
        }
        let effort = Effort { time: Duration::from_nanos(arguments.time.unwrap_or(TIME).0), ..Effort::new(batch) };
        let mut bar = begin(&effort, wanted.len(), "module");
        let measured = profile.measure_pipeline(&pipeline, &wanted, &effort, &mut |it| bar.at(it.done, it.function));
        bar.end();
        found = measured?;
        if let Some(store) = store.as_ref().filter(|_| !found.measured.is_empty()) {
            or_report(profile.keep(store), "what was measured is not kept");
        }
    }
    profile.functions.retain(|key, _| pipeline.modules.iter().any(|(_, _, of)| of == key));
    let mut out = printed::out();
    if arguments.json {
        let modules: BTreeMap<_, _> = pipeline.modules.iter().map(|(name, _, key)| (name, key)).collect();
        writeln!(
            out,
            "{}",
            serde_json::to_string(&OfPipeline { profile: &profile, modules, missing: &found.missing })?
        )?;
    } else {
        print_modules(&pipeline, &profile, &found, &mut out)?;
    }
    Ok(if found.missing.is_empty() { Answer::Yes } else { Answer::No })
}

/// The costs of a pipeline's modules, for JSON.
#[derive(Serialize)]
struct OfPipeline<'a> {
    #[serde(flatten)]
    profile: &'a Profile,
    /// By module: the key of its costs in `functions`.
    modules: BTreeMap<&'a String, &'a String>,
    /// By module that could not be measured: why.
    missing: &'a BTreeMap<String, String>,
}

fn print_modules(pipeline: &Pipeline, profile: &Profile, found: &Found, out: &mut impl Write) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let mut shown = BTreeSet::new();
    for (module, function, key) in &pipeline.modules {
        let Some(costed) = profile.functions.get(key).filter(|_| shown.insert(key)) else { continue };
        let alike = pipeline.modules.iter().filter(|(_, _, of)| of == key).count() - 1;
        let more = if alike > 0 { format!(" +{alike}") } else { String::new() };
        let nanos =
            |seconds: f64, [low, high]: [f64; 2]| format!("{:.1} ± {:.1}", seconds * 1e9, (high - low) / 2.0 * 1e9);
        rows.push(vec![
            format!("{}{more}", shortened(module, NAME - more.len())),
            function.clone(),
            nanos(costed.t0_s, costed.t0_95_s),
            nanos(costed.t1_s, costed.t1_95_s),
            format!("{:.2}", costed.batchiness),
        ]);
    }
    let columns = [
        ("module", Align::Left),
        ("function", Align::Left),
        ("T0, ns", Align::Right),
        ("T1, ns", Align::Right),
        ("batchiness", Align::Right),
    ];
    write!(out, "{}", format::table(&columns, &rows))?;
    if rows.iter().any(|row| row[0].contains(" +")) {
        writeln!(out, "+N: so many more modules have the same function and like parameters.")?;
    }
    say_of_what(profile, out)?;
    for (module, why) in &found.missing {
        writeln!(out, "{module} was not measured: {why}.")?;
    }
    let measured = counted(found.measured.len() as u64, "module");
    Ok(writeln!(out, "{measured} measured, {} known.", rows.len() - found.measured.len())?)
}

/// A name in so many columns.
fn shortened(name: &str, most: usize) -> String {
    if name.chars().count() <= most { name.to_owned() } else { name.chars().take(most - 1).chain(['…']).collect() }
}

/// Where profiles are kept, and what is there for batches of this size.
fn known_before(batch: usize) -> anyhow::Result<(Option<Store>, Profile)> {
    let key = Key::this(batch)?;
    // Before a minute is spent. Without a place to keep it, it is still an answer.
    let store =
        or_report(Store::of_user().and_then(|store| store.ready().map(|()| store)), "what is measured is not kept");
    let stored =
        store.as_ref().and_then(|store| or_report(Profile::stored(store, &key), "it is measured again")).flatten();
    Ok((store, stored.unwrap_or_else(|| Profile::empty(key))))
}

/// Returns the value. If there is none, prints why and what follows of that.
fn or_report<T>(result: Result<T, StoreError>, otherwise: &str) -> Option<T> {
    result.map_err(|error| writeln!(printed::err(), "{error}: {otherwise}")).ok()
}

/// A bar for so many functions or modules.
fn begin(effort: &Effort, measured: usize, what: &str) -> Bar {
    let mut bar = Bar::new();
    bar.begin(effort.passes * measured);
    let seconds = effort.expected(measured).as_secs_f64();
    if seconds >= WORTH_SAYING {
        bar.expect(&format!("measuring {}", counted(measured as u64, what)), seconds);
    }
    bar
}

fn print(profile: &Profile, out: &mut impl Write) -> std::io::Result<()> {
    let nanos = |seconds: f64| format!("{:.1}", seconds * 1e9);
    let interval = |[low, high]: [f64; 2]| format!("{} to {}", nanos(low), nanos(high));
    let row = |(name, costed): (&String, &profile::Costed)| {
        vec![
            name.clone(),
            nanos(costed.t0_s),
            interval(costed.t0_95_s),
            nanos(costed.t1_s),
            interval(costed.t1_95_s),
            known(costed.r2, 4),
            format!("{:.2}", costed.batchiness),
        ]
    };
    let rows: Vec<_> = profile.functions.iter().map(row).collect();
    let columns = [
        ("function", Align::Left),
        ("T0, ns", Align::Right),
        ("95 %", Align::Right),
        ("T1, ns", Align::Right),
        ("95 %", Align::Right),
        ("R²", Align::Right),
        ("batchiness", Align::Right),
    ];
    write!(out, "{}", format::table(&columns, &rows))?;
    say_of_what(profile, out)
}

/// Of what machine and program costs are, and how far it was disturbed.
fn say_of_what(profile: &Profile, out: &mut impl Write) -> std::io::Result<()> {
    let Key { cpu, build, batch } = &profile.key;
    writeln!(
        out,
        "A call on b packets costs T0 + T1 b on {cpu}, by Forebay {} ({}), for batches of up to {batch}.",
        build.forebay, build.program
    )?;
    let stalled = profile.functions.values().map(|costed| costed.stalled).fold(0.0, f64::max);
    if stalled > WORTH_TELLING {
        writeln!(
            out,
            "Other programs had the processor for up to {:.0} % of the time, which is left out.",
            stalled * 100.0
        )?;
    }
    Ok(())
}
