//! Which pipelines a gate counts, and counting them side by side.
//!
//! Counts do not mind what else the machine does: as many are made at a time as there are cores.

use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use forebay_measure::machine::allowed_cores;

use crate::baseline::Case;
use crate::counting::{self, Build, CountError, Counts, Extent};
use crate::process::Stamp;

/// The use cases in sizes of which one run can tell all modules.
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

/// Functions whose example would say little of a busy worker, and what is asked instead.
const FUNCTIONS: &[(&str, &[&str])] = &[
    // Its 10 Mbit/s would drop nearly all: at this rate packets pass, wait and are dropped.
    ("shaper", &["modules.shaper.shaper.rate=20Gbps"]),
    // The file would be full before counting begins.
    ("tap", &["modules.tap.tap.most=1000000"]),
];

/// A pipeline with its settings, as messages name it.
pub(crate) fn named(pipeline: &str, set: &[String]) -> String {
    let set = set.iter().map(|set| forebay_pipeline::shown_setting(set));
    std::iter::once(pipeline.to_owned()).chain(set).collect::<Vec<_>>().join(" ")
}

/// A pipeline that is to be counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// `usecase:NAME`, `function:NAME`, or a file's name relative to the baseline's folder.
    pub pipeline: String,
    /// Settings.
    pub set: Vec<String>,
}

impl Asked {
    fn new(pipeline: String, set: &[&str]) -> Self {
        Self { pipeline, set: set.iter().map(|set| (*set).to_owned()).collect() }
    }

    /// The pipeline of a case.
    #[must_use]
    pub fn of(case: &Case) -> Self {
        Self { pipeline: case.pipeline.clone(), set: case.set.clone() }
    }

    /// The pipeline with its settings, as messages name it.
    #[must_use]
    pub fn name(&self) -> String {
        named(&self.pipeline, &self.set)
    }
}

/// The built-in use cases, each in a small size.
#[must_use]
pub fn use_cases() -> Vec<Asked> {
    USE_CASES.iter().map(|(name, set)| Asked::new(format!("usecase:{name}"), set)).collect()
}

/// Every function that there is, each by itself.
#[must_use]
pub fn functions() -> Vec<Asked> {
    let all = forebay_graph::functions().into_iter().map(|function| {
        let set = FUNCTIONS.iter().find(|(name, _)| *name == function.name).map_or(&[][..], |(_, set)| set);
        Asked::new(format!("function:{}", function.name), set)
    });
    all.collect()
}

/// What is built in and stands for `pipeline` where no settings say otherwise: the groups `usecases` and `functions`, and each
/// of their members. Nothing where it is neither.
#[must_use]
pub fn built_in(pipeline: &str) -> Vec<Asked> {
    match pipeline {
        "usecases" => use_cases(),
        "functions" => functions(),
        _ => use_cases().into_iter().chain(functions()).filter(|asked| asked.pipeline == pipeline).collect(),
    }
}

/// A file's name relative to `folder`, so that a baseline beside it holds wherever both are moved. Both are absolute.
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
    /// Which.
    pub case: String,
    /// Why.
    pub error: CountError,
}

/// What was counted.
pub struct Counted {
    /// By pipeline, as they were asked.
    pub cases: Vec<Case>,
    /// The largest batch of each.
    pub batches: Vec<usize>,
    /// The program that was counted.
    pub build: Build,
}

/// Counts pipelines as `program` runs them, as many at a time as there are cores; names of files are relative to `folder`.
/// `told` hears of each that is done.
///
/// # Errors
/// The first of them that cannot be counted.
pub fn counts(
    program: &Path,
    folder: &Path,
    asked: &[Asked],
    extent: Extent,
    told: &mut dyn FnMut(&Asked),
) -> Result<Vec<Counts>, CaseError> {
    let (next, (tell, done)) = (AtomicUsize::new(0), channel());
    let failed = tell.clone();
    let stamp = Stamp::of(program);
    let mut all: Vec<Option<Result<Counts, CountError>>> = asked.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        for number in 0..allowed_cores().len().clamp(1, asked.len().max(1)) {
            let (next, tell) = (&next, tell.clone());
            let work = move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = asked.get(at) else { return };
                    let mut counts = counting::count(program, &found(&one.pipeline, folder), &one.set, extent);
                    if stamp != Stamp::of(program) {
                        counts = Err(CountError::Replaced(program.to_owned()));
                    }
                    // The others end with what they are at.
                    if counts.is_err() {
                        next.store(asked.len(), Ordering::Relaxed);
                    }
                    if tell.send((at, counts)).is_err() {
                        return;
                    }
                }
            };
            match std::thread::Builder::new().spawn_scoped(scope, work) {
                Err(error) if number == 0 => drop(failed.send((0, Err(CountError::Thread(error))))),
                // Those that there are do it.
                Ok(_) | Err(_) => {}
            }
        }
        drop((tell, failed));
        for (at, counts) in done {
            told(&asked[at]);
            all[at] = Some(counts);
        }
    });
    let all = asked.iter().zip(all).filter_map(|(asked, counts)| Some((asked, counts?)));
    all.map(|(asked, counts)| counts.map_err(|error| CaseError { case: asked.name(), error })).collect()
}

/// Counts pipelines as [`counts`] does, for a baseline.
///
/// # Errors
/// As there.
pub fn count(
    program: &Path,
    folder: &Path,
    asked: &[Asked],
    extent: Extent,
    told: &mut dyn FnMut(&Asked),
) -> Result<Counted, CaseError> {
    let mut counted = Counted { cases: Vec::new(), batches: Vec::new(), build: Build::default() };
    for (asked, counts) in asked.iter().zip(counts(program, folder, asked, extent, told)?) {
        counted.cases.push(Case::of(&asked.pipeline, &asked.set, &counts));
        counted.batches.push(counts.served.batch);
        counted.build = counts.served.build;
    }
    Ok(counted)
}

/// A pipeline as the counted program finds it.
fn found(pipeline: &str, folder: &Path) -> String {
    if forebay_pipeline::is_built_in(pipeline) {
        return pipeline.to_owned();
    }
    folder.join(pipeline).display().to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    // Functions make themselves known by being linked.
    use forebay_functions as _;

    #[test]
    fn groups_are_all_of_their_kind() {
        assert_eq!(built_in("functions").len(), forebay_graph::functions().len());
        assert_eq!(built_in("usecases").len(), forebay_pipeline::usecases().len());
        assert_eq!(built_in("usecase:gw").iter().map(Asked::name).collect::<Vec<_>>(), ["usecase:gw n=4"]);
        assert_eq!(built_in("gateway.yaml"), []);
        for asked in use_cases().into_iter().chain(functions()) {
            let source = forebay_pipeline::built_in(&asked.pipeline, &asked.set).expect("it is built in");
            let checked = forebay_pipeline::check(&source.unwrap_or_else(|told| panic!("{told}")));
            let modules = checked.unwrap_or_else(|told| panic!("{told}")).modules.len();
            assert!(modules <= crate::named::NAMES, "{}: {modules} modules in one run", asked.name());
        }
    }

    #[test]
    fn names_are_relative_to_the_baseline() {
        let told = |file: &str, folder: &str| relative(Path::new(file), Path::new(folder)).display().to_string();
        assert_eq!(told("/a/b/c.yaml", "/a/b"), "c.yaml");
        assert_eq!(told("/a/b/c.yaml", "/a/x/y"), "../../b/c.yaml");
        assert_eq!(told("/c.yaml", "/"), "c.yaml");
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
