//! The folder that an experiment's results are written to.

use std::path::{Path, PathBuf};

use forebay_graph::files::replace;
use serde::Serialize;

use crate::LabError;

/// Writes `results.json` and these files to a folder, which is made where it is not there. Each is written whole or not at all.
/// The files that were written.
pub(crate) fn write(
    folder: &Path,
    results: &impl Serialize,
    files: Vec<(&'static str, String)>,
) -> Result<Vec<PathBuf>, LabError> {
    let wrong = |path: &Path| {
        let path = path.to_owned();
        move |error| LabError::File { path, error }
    };
    std::fs::create_dir_all(folder).map_err(wrong(folder))?;
    let json =
        serde_json::to_string_pretty(results).map_err(|error| wrong(&folder.join("results.json"))(error.into()))?;
    let mut written = Vec::new();
    for (name, text) in std::iter::once(("results.json", json)).chain(files) {
        let path = folder.join(name);
        replace(&path, text.as_bytes()).map_err(wrong(&path))?;
        written.push(path);
    }
    Ok(written)
}
