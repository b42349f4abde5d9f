//! `forebay profile`: what calls of functions cost on this machine, measured or known.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use forebay_lean::profile::{self, Effort, Key, Profile, Progress, Store, StoreError};
use indicatif::{ProgressBar, ProgressStyle};

use crate::format::{Align, counted, known};
use crate::{args, format, printed};

/// The share of the time for which the machine may be elsewhere before that is told.
const WORTH_TELLING: f64 = 0.01;

/// Measures what is not known, and prints all that was asked for.
pub(crate) fn profile(arguments: &args::Profile) -> anyhow::Result<()> {
    profile::known(&arguments.functions)?;
    let names: BTreeSet<_> =
        if arguments.functions.is_empty() { profile::all() } else { arguments.functions.clone() }.into_iter().collect();
    let key = Key::this(arguments.batch)?;
    // Before a minute is spent. Without a place to keep it, it is still an answer.
    let store = told(Store::of_user().and_then(|store| store.ready().map(|()| store)), "what is measured is not kept");
    let stored = store.as_ref().and_then(|store| told(Profile::stored(store, &key), "it is measured anew")).flatten();
    let mut profile = stored.unwrap_or_else(|| Profile::empty(key));
    let unknown = |name: &&String| arguments.again || !profile.functions.contains_key(*name);
    let wanted: Vec<_> = names.iter().filter(unknown).cloned().collect();
    if !wanted.is_empty() {
        // A function may write files; they are not the user's.
        let elsewhere = crate::temporary::folder()?;
        std::env::set_current_dir(elsewhere.path())?;
        let effort = Effort { time: Duration::from_nanos(arguments.time.0), ..Effort::new(arguments.batch) };
        let measured = measure(&mut profile, &wanted, &effort);
        if let Some(store) = &store {
            told(profile.keep(store), "what was measured is not kept");
        }
        measured?;
    }
    let at = store.map(|store| store.file(&profile.key));
    profile.functions.retain(|name, _| names.contains(name));
    let mut out = printed::out();
    if arguments.json {
        return Ok(writeln!(out, "{}", serde_json::to_string(&profile)?)?);
    }
    print(&profile, &mut out)?;
    let here = counted(wanted.len() as u64, "function");
    let before = names.len() - wanted.len();
    let file = at.filter(|_| before > 0).map(|file| format!(" from {} (--again measures)", file.display()));
    writeln!(out, "{here} measured, {before} known{}.", file.unwrap_or_default())?;
    Ok(())
}

/// What there is; where there is nothing, why, and what follows of that.
fn told<T>(result: Result<T, StoreError>, otherwise: &str) -> Option<T> {
    result.map_err(|error| writeln!(printed::err(), "{error}: {otherwise}")).ok()
}

fn measure(profile: &mut Profile, names: &[String], effort: &Effort) -> anyhow::Result<()> {
    let bar = ProgressBar::new(names.len() as u64);
    let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {pos}/{len} {wide_msg}");
    // The template is this program's own: a mistake in it would show in every run.
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    let measured = profile.measure(names, effort, &mut |Progress { function, done, .. }| {
        bar.set_position(done as u64);
        bar.set_message(function.to_owned());
    });
    bar.finish_and_clear();
    Ok(measured?)
}

fn print(profile: &Profile, out: &mut impl Write) -> std::io::Result<()> {
    let nanos = |seconds: f64| format!("{:.1}", seconds * 1e9);
    let interval = |[low, high]: [f64; 2]| format!("{} to {}", nanos(low), nanos(high));
    let row = |(name, told): (&String, &profile::Costed)| {
        vec![
            name.clone(),
            nanos(told.t0_s),
            interval(told.t0_95_s),
            nanos(told.t1_s),
            interval(told.t1_95_s),
            known(told.r2, 4),
            format!("{:.2}", told.batchiness),
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
    let Key { cpu, build, batch } = &profile.key;
    writeln!(
        out,
        "A call on b packets costs T0 + T1 b on {cpu}, by Forebay {} ({}), for batches of up to {batch}.",
        build.forebay, build.program
    )?;
    let flat: Vec<_> = profile.functions.iter().filter(|(_, told)| told.is_flat(*batch)).collect();
    if !flat.is_empty() {
        let names: Vec<_> = flat.iter().map(|(name, _)| name.as_str()).collect();
        writeln!(out, "Packets add hardly anything to a call of {}: R² is mostly of noise there.", names.join(", "))?;
    }
    let stalled = profile.functions.values().map(|told| told.stalled).fold(0.0, f64::max);
    if stalled > WORTH_TELLING {
        writeln!(out, "The machine was elsewhere for up to {:.0} % of the time, which is left out.", stalled * 100.0)?;
    }
    Ok(())
}
