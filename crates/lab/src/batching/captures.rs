//! Runs use cases on recorded traffic. The packets have the order of sessions, the lengths and the pauses of a capture,
//! at a load below the capacity.

use std::path::{Path, PathBuf};

use super::open::{Offered, Open, PERCENTILE};
use super::scenario::{Pipeline, fold};
use super::testbed::Testbed;
use super::{Extents, open};
use crate::{LabError, Progress};

/// The load, as a share of the rate that the worker reaches under `max`.
const LOAD: f64 = 0.6;

/// Performs all runs on the captures in a folder.
pub(super) fn measure(
    folder: &Path,
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Open>, LabError> {
    let files = files(folder)?;
    let (gateway, mobile): (_, &[_]) = if extents.short { ("n=4", &["m=2", "n=2"]) } else { ("n=16", &["m=4", "n=4"]) };
    let pipelines = [(Pipeline::new("gw", &[gateway]), &["in"][..]), (Pipeline::new("mgw", mobile), &["down", "up"])];
    let (mut full, mut all) = (Vec::new(), Vec::new());
    for file in &files {
        for (pipeline, sources) in &pipelines {
            for on in [false, true] {
                let (pipeline, settings) = (pipeline.clone().keeping(PERCENTILE), recorded(file, sources)?);
                full.push((pipeline.clone(), [settings.clone(), vec![fold(on)]].concat()));
                all.push(Offered {
                    pipeline,
                    settings,
                    arrivals: name(file),
                    share: LOAD,
                    rate_pps: 0.0,
                    fold: on,
                    uneven: true,
                });
            }
        }
    }
    let full = open::capacities(&full, testbed, extents, progress)?;
    for (offered, full) in all.iter_mut().zip(full) {
        offered.rate_pps = (full * LOAD).max(1.0);
    }
    open::under_all(&all, testbed, extents, progress)
}

/// Returns the settings with which these sources send the recorded packets.
pub(super) fn recorded(file: &Path, sources: &[&str]) -> Result<Vec<String>, LabError> {
    let file = std::path::absolute(file).map_err(|error| LabError::File { path: file.to_owned(), error })?;
    // A name in JSON is also a valid name in YAML.
    let file = serde_json::Value::from(file.display().to_string());
    let of = |source: &&str| {
        let generator = format!("ports.{source}.generator");
        [format!("{generator}.recorded={file}"), format!("{generator}.size=null")]
    };
    Ok(sources.iter().flat_map(of).collect())
}

/// Returns the name of a capture in tables: its file name.
pub(super) fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The endings of the file names of captures.
pub(crate) const ENDS: [&str; 8] =
    [".pcap", ".pcapng", ".pcap.gz", ".pcapng.gz", ".pcap.zst", ".pcapng.zst", ".pcap.lz4", ".pcapng.lz4"];

/// Returns the captures in a folder, sorted by name. A folder without captures is an error.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let wrong = |error| LabError::File { path: folder.to_owned(), error };
    let entries = std::fs::read_dir(folder).map_err(wrong)?.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| ENDS.iter().any(|end| name(file).ends_with(end)));
    files.sort();
    if files.is_empty() { Err(LabError::Captures(folder.to_owned())) } else { Ok(files) }
}
