//! The pipelines that a gate counts, and counting several of them at the same time.
//!
//! Instruction counts do not depend on the load of the machine, so each core counts one pipeline at a time.

use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use forebay_measure::machine::allowed_cores;

use crate::baseline::Case;
use crate::counting::{self, CountError, CountedBuild, Counts, Extent};
use crate::program::Stamp;

/// The use cases, in sizes whose modules can all be counted in one run.
const USE_CASES: &[(&str, &[&str])] = &[
    ("l2l3", &["n=4"]),
    ("gw", &["n=4"]),
    ("vrf", &["m=2", "n=2"]),
    ("mgw", &["m=2", "n=2"]),
    ("rc", &["n=8"]),
    ("sfc_a", &["n=2"]),
    ("sfc_b", &["n=2"]),
    ("forward", &["n=4"]),
    ("router", &["n=4"]),
    ("firewall", &["n=2"]),
    ("nids", &["n=2"]),
    ("dpi", &["n=2"]),
    ("vpn", &["n=2"]),
    ("aes", &["n=2", "ends=2"]),
];

/// Functions whose example needs other settings to do the work of a busy worker, each with these settings.
const FUNCTIONS: &[(&str, &[&str])] = &[
    // At its default rate of 10 Mbit/s, the shaper would drop nearly all packets. At this rate, some packets pass at
    // once, some wait, and some are dropped.
    ("shaper", &["modules.shaper.shaper.rate=20Gbps"]),
    // With the default, the file would be full before counting begins.
    ("tap", &["modules.tap.tap.most=1000000"]),
];

/// Returns the pipeline with its settings, for messages.
pub(crate) fn named(pipeline: &str, set: &[String]) -> String {
    let set = set.iter().map(|set| forebay_pipeline::shown_setting(set));
    std::iter::once(pipeline.to_owned()).chain(set).collect::<Vec<_>>().join(" ")
}

/// A request to count the instructions of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountRequest {
    /// `usecase:NAME`, `function:NAME`, or a file's name relative to the baseline's folder.
    pub pipeline: String,
    /// The settings of the pipeline (`--set`).
    pub set: Vec<String>,
}

impl CountRequest {
    fn new(pipeline: String, set: &[&str]) -> Self {
        Self { pipeline, set: set.iter().map(|set| (*set).to_owned()).collect() }
    }

    /// Returns the pipeline of a case of a baseline.
    #[must_use]
    pub fn of(case: &Case) -> Self {
        Self { pipeline: case.pipeline.clone(), set: case.set.clone() }
    }

    /// Returns the pipeline with its settings, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        named(&self.pipeline, &self.set)
    }
}

/// Returns the built-in use cases, each in a small size.
#[must_use]
pub fn use_cases() -> Vec<CountRequest> {
    USE_CASES.iter().map(|(name, set)| CountRequest::new(format!("usecase:{name}"), set)).collect()
}

/// Returns all functions, each as its own pipeline.
#[must_use]
pub fn functions() -> Vec<CountRequest> {
    let all = forebay_graph::functions().into_iter().map(|function| {
        let set = FUNCTIONS.iter().find(|(name, _)| *name == function.name).map_or(&[][..], |(_, set)| set);
        CountRequest::new(format!("function:{}", function.name), set)
    });
    all.collect()
}

/// Returns the built-in pipelines for a name, with their default settings: all members of the groups `usecases` and
/// `functions`, or the one pipeline of this name. Empty for other names.
#[must_use]
pub fn built_in(pipeline: &str) -> Vec<CountRequest> {
    match pipeline {
        "usecases" => use_cases(),
        "functions" => functions(),
        _ => use_cases().into_iter().chain(functions()).filter(|case| case.pipeline == pipeline).collect(),
    }
}

/// Returns a file's path relative to `folder`, so that a baseline in that folder stays valid if both are moved. Both
/// paths must be absolute.
#[must_use]
pub fn relative(file: &Path, folder: &Path) -> PathBuf {
    let (file, folder): (Vec<_>, Vec<_>) = (file.components().collect(), folder.components().collect());
    let shared = file.iter().zip(&folder).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n(Component::ParentDir, folder.len() - shared);
    up.chain(file[shared..].iter().copied()).collect()
}

/// A pipeline that could not be counted.
#[derive(Debug, thiserror::Error)]
#[error("{case}: {error}")]
pub struct CaseError {
    /// The pipeline with its settings.
    pub case: String,
    /// The error.
    pub error: CountError,
}

/// The counts of several pipelines.
pub struct Counted {
    /// One case per pipeline, in the order of the request.
    pub cases: Vec<Case>,
    /// The largest batch of each pipeline, in packets, in the same order.
    pub batches: Vec<usize>,
    /// The counted program.
    pub build: CountedBuild,
}

/// Counts pipelines in processes of `program`, one per core at a time. Returns the counts in the order of `requested`.
/// File names are relative to `folder`. Calls `done` for each pipeline that is finished.
///
/// # Errors
/// The error of a pipeline that cannot be counted: of several, the first in the order of `requested`. After an error,
/// no further pipeline is counted.
pub fn counts(
    program: &Path,
    folder: &Path,
    requested: &[CountRequest],
    extent: Extent,
    done: &mut dyn FnMut(&CountRequest),
) -> Result<Vec<Counts>, CaseError> {
    let (next, (sender, results)) = (AtomicUsize::new(0), channel());
    let failed = sender.clone();
    let stamp = Stamp::of(program);
    let mut all: Vec<Option<Result<Counts, CountError>>> = requested.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        for number in 0..allowed_cores().len().clamp(1, requested.len().max(1)) {
            let (next, sender) = (&next, sender.clone());
            let work = move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = requested.get(at) else { return };
                    let mut counts = counting::count(program, &argument(&one.pipeline, folder), &one.set, extent);
                    if stamp != Stamp::of(program) {
                        counts = Err(CountError::Replaced(program.to_owned()));
                    }
                    // After an error, the other threads finish their current count and stop.
                    if counts.is_err() {
                        next.store(requested.len(), Ordering::Relaxed);
                    }
                    if sender.send((at, counts)).is_err() {
                        return;
                    }
                }
            };
            match std::thread::Builder::new().spawn_scoped(scope, work) {
                Err(error) if number == 0 => drop(failed.send((0, Err(CountError::Thread(error))))),
                // If a thread cannot be started, the others do its work.
                Ok(_) | Err(_) => {}
            }
        }
        drop((sender, failed));
        for (at, counts) in results {
            done(&requested[at]);
            all[at] = Some(counts);
        }
    });
    let all = requested.iter().zip(all).filter_map(|(request, counts)| Some((request, counts?)));
    all.map(|(request, counts)| counts.map_err(|error| CaseError { case: request.name(), error })).collect()
}

/// Counts pipelines like [`counts`], for a baseline.
///
/// # Errors
/// Same as [`counts`].
pub fn count(
    program: &Path,
    folder: &Path,
    requested: &[CountRequest],
    extent: Extent,
    done: &mut dyn FnMut(&CountRequest),
) -> Result<Counted, CaseError> {
    let mut counted = Counted { cases: Vec::new(), batches: Vec::new(), build: CountedBuild::default() };
    for (request, counts) in requested.iter().zip(counts(program, folder, requested, extent, done)?) {
        counted.cases.push(Case::of(&request.pipeline, &request.set, &counts));
        counted.batches.push(counts.served.batch);
        counted.build = counts.served.build;
    }
    Ok(counted)
}

/// Returns the pipeline as an argument of the counted program: a built-in name unchanged, a file name joined to
/// `folder`.
fn argument(pipeline: &str, folder: &Path) -> String {
    if forebay_pipeline::is_built_in(pipeline) {
        return pipeline.to_owned();
    }
    folder.join(pipeline).display().to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    // Functions register themselves when they are linked.
    use forebay_functions as _;

    #[test]
    fn groups_have_all_members() {
        assert_eq!(built_in("functions").len(), forebay_graph::functions().len());
        assert_eq!(built_in("usecases").len(), forebay_pipeline::usecases().len());
        assert_eq!(built_in("usecase:gw").iter().map(CountRequest::name).collect::<Vec<_>>(), ["usecase:gw n=4"]);
        assert_eq!(built_in("gateway.yaml"), []);
        for case in use_cases().into_iter().chain(functions()) {
            let source = forebay_pipeline::built_in(&case.pipeline, &case.set).expect("it is built in");
            let checked = forebay_pipeline::check(&source.unwrap_or_else(|problems| panic!("{problems}")));
            let modules = checked.unwrap_or_else(|problems| panic!("{problems}")).modules.len();
            assert!(modules <= crate::named::NAMES, "{}: {modules} modules in one run", case.name());
        }
    }

    #[test]
    fn names_are_relative_to_the_baseline() {
        let name = |file: &str, folder: &str| relative(Path::new(file), Path::new(folder)).display().to_string();
        assert_eq!(name("/a/b/c.yaml", "/a/b"), "c.yaml");
        assert_eq!(name("/a/b/c.yaml", "/a/x/y"), "../../b/c.yaml");
        assert_eq!(name("/c.yaml", "/"), "c.yaml");
    }

    proptest! {
        #[test]
        fn joined_again_they_are_the_same_file(file in "(/[ab]){1,5}", folder in "(/[ab]){0,5}") {
            let folder = format!("/{folder}");
            let joined = Path::new(&folder).join(relative(Path::new(&file), Path::new(&folder)));
            let mut plain = PathBuf::new();
            for part in joined.components() {
                if part == Component::ParentDir { plain.pop(); } else { plain.push(part); }
            }
            prop_assert_eq!(plain, PathBuf::from(file));
        }
    }
}
