//! Recorded traffic: use cases whose packets come as they do in a capture, in the same order of sessions and with the same lengths and
//! pauses, at a load that leaves time.

use std::path::{Path, PathBuf};

use super::open::{Offered, Open, PERCENTILE};
use super::place::Place;
use super::scenario::{Pipeline, fold};
use super::{Extents, open};
use crate::{LabError, Progress};

/// Of what the worker does under `max`.
const LOAD: f64 = 0.6;

/// Makes all runs on the captures in a folder.
pub(super) fn measure(
    folder: &Path,
    place: &Place,
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
    let full = open::capacities(&full, place, extents, progress)?;
    for (offered, full) in all.iter_mut().zip(full) {
        offered.rate_pps = (full * LOAD).max(1.0);
    }
    open::under_all(&all, place, extents, progress)
}

/// Settings with which these sources send as was recorded.
pub(super) fn recorded(file: &Path, sources: &[&str]) -> Result<Vec<String>, LabError> {
    let file = std::path::absolute(file).map_err(|error| LabError::File { path: file.to_owned(), error })?;
    // A name in JSON is one in YAML.
    let file = serde_json::Value::from(file.display().to_string());
    let of = |source: &&str| {
        let generator = format!("ports.{source}.generator");
        [format!("{generator}.recorded={file}"), format!("{generator}.size=null")]
    };
    Ok(sources.iter().flat_map(of).collect())
}

pub(super) fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// How names of captures end.
pub(crate) const ENDS: [&str; 8] =
    [".pcap", ".pcapng", ".pcap.gz", ".pcapng.gz", ".pcap.zst", ".pcapng.zst", ".pcap.lz4", ".pcapng.lz4"];

/// The captures in a folder, by name.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let wrong = |error| LabError::File { path: folder.to_owned(), error };
    let entries = std::fs::read_dir(folder).map_err(wrong)?.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| ENDS.iter().any(|end| name(file).ends_with(end)));
    files.sort();
    if files.is_empty() { Err(LabError::Captures(folder.to_owned())) } else { Ok(files) }
}
