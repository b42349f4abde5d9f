//! `forebay profile`: measures the cost of function calls on this machine, or prints stored results.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;

use anyhow::bail;
use forebay_bench::profile::{self, Effort, Found, Key, Pipeline, Profile, Store, StoreError};
use forebay_corun::subject::is_pipeline;
use forebay_units::Nanos;
use serde::Serialize;

use crate::format::{Align, counted, known};
use crate::progress::Bar;
use crate::{Answer, args, format, printed};

/// Maximum width of a module's name, in columns.
const NAME: usize = 22;
/// The default largest batch of functions, in packets.
const BATCH: usize = 32;
/// The default measuring time per function.
const TIME: Nanos = Nanos(600_000_000);
/// An expected measuring time is announced if it is at least this long, in seconds.
const LONG_SECONDS: f64 = 1.0;
/// If other programs took a larger fraction of the time than this, the fraction is reported.
const STALLED_LIMIT: f64 = 0.01;

/// Measures the functions that have no stored result, and prints all requested functions.
pub(crate) fn profile(arguments: &args::Profile) -> anyhow::Result<Answer> {
    if arguments.co_runs {
        return crate::corun::co_runs(arguments);
    }
    if let Some(pipeline) = arguments.functions.iter().find(|name| is_pipeline(name)) {
        if let Some(other) = arguments.functions.iter().find(|name| *name != pipeline) {
            bail!("{pipeline}, {other}: name one pipeline, or functions");
        }
        return of_pipeline(pipeline, arguments);
    }
    if let Some(set) = arguments.set.first() {
        bail!(
            "--set {set}: functions are measured with the parameters of their examples: to use --set, name a pipeline"
        );
    }
    let batch = arguments.batch.unwrap_or(BATCH);
    profile::known(&arguments.functions)?;
    let names: BTreeSet<_> =
        if arguments.functions.is_empty() { profile::all() } else { arguments.functions.clone() }.into_iter().collect();
    let (store, mut profile) = known_before(batch)?;
    let unknown = |name: &&String| arguments.again || !profile.functions.contains_key(*name);
    let wanted: Vec<_> = names.iter().filter(unknown).cloned().collect();
    if !wanted.is_empty() {
        // Run in a temporary folder: a function may write files, and they must not land in the user's folder.
        let elsewhere = crate::temporary::folder()?;
        std::env::set_current_dir(elsewhere.path())?;
        let effort = Effort { time: Duration::from_nanos(arguments.time.unwrap_or(TIME).0), ..Effort::new(batch) };
        let mut bar = begin(&effort, wanted.len(), "function");
        let measured = profile.measure(&wanted, &effort, &mut |it| bar.at(it.done, it.function));
        bar.end();
        if let Some(store) = &store {
            or_report(profile.keep(store), "the measured costs are not stored");
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

/// Measures the modules of a pipeline with their parameters, and prints the cost of each.
fn of_pipeline(name: &str, arguments: &args::Profile) -> anyhow::Result<Answer> {
    let pipeline = Pipeline::new(crate::source::source(name, &arguments.set)?, arguments.batch)?;
    let batch = pipeline.batch;
    if !Effort::BATCHES.contains(&batch) {
        let (least, most) = (Effort::BATCHES.start(), Effort::BATCHES.end());
        bail!("{name}: largest batch {batch} is out of range ({least} to {most}); set another with `--batch N`");
    }
    let (store, mut profile) = known_before(batch)?;
    let wanted = pipeline.wanted(&profile, arguments.again);
    let mut found = Found::default();
    if !wanted.is_empty() {
        for (port, kind) in &pipeline.replaced {
            writeln!(printed::err(), "port '{port}' ({kind}): generated packets replace its traffic")?;
        }
        let effort = Effort { time: Duration::from_nanos(arguments.time.unwrap_or(TIME).0), ..Effort::new(batch) };
        let mut bar = begin(&effort, wanted.len(), "module");
        let measured = profile.measure_pipeline(&pipeline, &wanted, &effort, &mut |it| bar.at(it.done, it.function));
        bar.end();
        found = measured?;
        if let Some(store) = store.as_ref().filter(|_| !found.measured.is_empty()) {
            or_report(profile.keep(store), "the measured costs are not stored");
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
    /// For each module, the key of its costs in `functions`.
    modules: BTreeMap<&'a String, &'a String>,
    /// For each module that could not be measured, the reason.
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
        writeln!(out, "+N: N more modules have the same function and equivalent parameters.")?;
    }
    print_conditions(profile, out)?;
    for (module, why) in &found.missing {
        writeln!(out, "{module} was not measured: {why}.")?;
    }
    let measured = counted(found.measured.len() as u64, "module");
    Ok(writeln!(out, "{measured} measured, {} known.", rows.len() - found.measured.len())?)
}

/// Shortens a name to at most this many columns.
fn shortened(name: &str, most: usize) -> String {
    if name.chars().count() <= most { name.to_owned() } else { name.chars().take(most - 1).chain(['…']).collect() }
}

/// Returns the folder of profiles, and the stored profile for this largest batch. The folder is `None` if it cannot be
/// used. The profile is empty if none is stored.
fn known_before(batch: usize) -> anyhow::Result<(Option<Store>, Profile)> {
    let key = Key::this(batch)?;
    // Check the folder before measuring for a minute. Without a folder, the results are still printed.
    let store = or_report(
        Store::of_user().and_then(|store| store.ready().map(|()| store)),
        "the measured costs are not stored",
    );
    let stored = store.as_ref().and_then(|store| or_report(Profile::stored(store, &key), "measuring again")).flatten();
    Ok((store, stored.unwrap_or_else(|| Profile::empty(key))))
}

/// Returns the value. On an error, prints the error and its consequence `otherwise`, and returns `None`.
fn or_report<T>(result: Result<T, StoreError>, otherwise: &str) -> Option<T> {
    result.map_err(|error| writeln!(printed::err(), "{error}: {otherwise}")).ok()
}

/// Returns a progress bar for the measurement of this number of functions or modules.
fn begin(effort: &Effort, measured: usize, what: &str) -> Bar {
    let mut bar = Bar::new();
    bar.begin(effort.passes * measured);
    let seconds = effort.expected(measured).as_secs_f64();
    if seconds >= LONG_SECONDS {
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
    print_conditions(profile, out)
}

/// Prints the machine and program of the costs, and how much other programs disturbed the measurement.
fn print_conditions(profile: &Profile, out: &mut impl Write) -> std::io::Result<()> {
    let Key { cpu, build, batch } = &profile.key;
    writeln!(
        out,
        "A call on b packets costs T0 + T1 b on {cpu}, by Forebay {} ({}), for batches of up to {batch}.",
        build.forebay, build.program
    )?;
    let stalled = profile.functions.values().map(|costed| costed.stalled).fold(0.0, f64::max);
    if stalled > STALLED_LIMIT {
        writeln!(
            out,
            "Other programs used the processor for up to {:.0} % of the time. The costs exclude this time.",
            stalled * 100.0
        )?;
    }
    Ok(())
}
