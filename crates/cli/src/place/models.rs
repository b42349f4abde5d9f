//! The models of functions: the stored models of this machine, or models from files. Functions without a model are
//! measured or reported.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use forebay_bench::profile::{Key, Profile, Store};
use forebay_pipeline::listed;
use forebay_placement::chains::{ChainFunction, Chains};
use forebay_placement::pipeline::unplaced;
use forebay_placement::problem::MissingModel;
use forebay_placement::{Registry, RegistryError};
use forebay_protocol::event::on_one_line;

use forebay_placement::format::rate;

use crate::printed;

/// The hint for a missing model, which names the sources of models.
const MODEL_HINT: &str = "`forebay profile --co-runs` measures models on this machine, `--models FILE` reads others; \
                          in the file of chains, `models: { FUNCTION: MODEL }` uses a model for another function";

/// Reads the model files in their order. A model in a later file replaces a model of the same function. Without files,
/// reads the stored models of this machine.
pub(super) fn read(files: &[PathBuf], batch: usize) -> anyhow::Result<Registry> {
    let Some((first, others)) = files.split_first() else { return of_machine(batch) };
    let mut registry = Registry::read(first).map_err(named)?;
    for file in others {
        registry.add(Registry::read(file).map_err(named)?, &file.display().to_string()).map_err(named)?;
    }
    Ok(registry)
}

fn named(error: RegistryError) -> anyhow::Error {
    anyhow!("place: --models {error}")
}

/// Returns the stored models of this machine. Functions of the chains without a model are measured first, and a message
/// reports this.
pub(super) fn measured(chains: &Chains, keys: &BTreeMap<String, String>) -> anyhow::Result<Registry> {
    let known = stored(chains.batch)?;
    let has_model = |function: &ChainFunction| {
        let names = [chains.models.get(&function.name), keys.get(&function.module)];
        let plain = function.function.to_owned();
        let mut names = names.into_iter().flatten().chain([&plain]);
        known.as_ref().is_some_and(|known| names.any(|name| known.functions.contains_key(name)))
    };
    let missing: Vec<_> = chains.functions().filter(|function| !has_model(function)).collect();
    if missing.is_empty() {
        return of_machine(chains.batch);
    }
    let names: BTreeSet<_> = missing.iter().map(|function| function.name.as_str()).collect();
    let wanted: Vec<_> = missing.iter().filter_map(|function| keys.get(&function.module).cloned()).collect();
    writeln!(
        printed::err(),
        "no models of {}: measuring them now, alone and beside competitors (`--no-profile` prevents this)",
        listed(names)
    )?;
    crate::corun::measure_modules(&unplaced(chains)?, chains.batch, &wanted).context("place: models")?;
    of_machine(chains.batch)
}

/// Reads the models that co-runs on this machine stored for this build and largest batch.
fn of_machine(batch: usize) -> anyhow::Result<Registry> {
    let file = file(batch)?;
    let none =
        || format!("place: no models for this machine, build and batch {batch} ({}): {MODEL_HINT}", file.display());
    stored(batch)?.with_context(none)
}

/// Reads the stored models; `None` if the file does not exist.
fn stored(batch: usize) -> anyhow::Result<Option<Registry>> {
    match Registry::read(&file(batch)?) {
        Err(RegistryError::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|error| anyhow!("place: {error}")),
    }
}

/// Returns the path of the stored models for this machine, this build and this largest batch.
fn file(batch: usize) -> anyhow::Result<PathBuf> {
    let Key { cpu, build, .. } = Key::this(batch)?;
    Ok(Registry::file(&Store::folder("placement")?, &cpu, &build.to_string(), batch))
}

/// Returns the error for functions without a model. If the profile knows the rate of a function alone, the error states
/// it.
pub(super) fn missing(file: &str, missing: &[MissingModel], registry: &Registry, batch: usize) -> anyhow::Error {
    let key = Key::this(batch).ok();
    let profile = key.and_then(|key| Profile::stored(&Store::of_user().ok()?, &key).ok().flatten());
    let known = |model: &MissingModel| {
        let functions = &profile.as_ref()?.functions;
        let costed = functions.get(&model.key).or_else(|| functions.get(&model.function))?;
        let packets = batch as f64;
        let alone = packets / (costed.t0_s + costed.t1_s * packets);
        Some(format!(
            "; the stored profile has only the rate of the function alone ({} in full batches), not its contention",
            rate(alone)
        ))
    };
    let line = |model: &MissingModel| format!("{file}: {model}{}", known(model).unwrap_or_default());
    let lines: Vec<_> = missing.iter().map(line).collect();
    let names: Vec<_> = registry.functions.keys().map(|name| on_one_line(name)).collect();
    let models = listed(names.iter().map(String::as_str));
    anyhow!("{}\n  {MODEL_HINT} (models exist for {models})", lines.join("\n"))
}
