//! Writes the results of an experiment to a folder.

use std::path::{Path, PathBuf};

use forebay_graph::files::replace;
use serde::Serialize;

use crate::LabError;

/// Writes `results.json` and the given files to a folder, which is created if it is missing. Each file is written as a
/// whole or not at all. A file without a text is removed, because it would belong to other results. Returns the files
/// that were written.
pub(crate) fn write(
    folder: &Path,
    results: &impl Serialize,
    files: Vec<(&'static str, Option<String>)>,
) -> Result<Vec<PathBuf>, LabError> {
    let wrong = |path: &Path| {
        let path = path.to_owned();
        move |error| LabError::File { path, error }
    };
    std::fs::create_dir_all(folder).map_err(wrong(folder))?;
    let json =
        serde_json::to_string_pretty(results).map_err(|error| wrong(&folder.join("results.json"))(error.into()))?;
    let mut written = Vec::new();
    for (name, text) in std::iter::once(("results.json", Some(json))).chain(files) {
        let path = folder.join(name);
        if let Some(text) = text {
            replace(&path, text.as_bytes()).map_err(wrong(&path))?;
            written.push(path);
        } else if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(wrong(&path)(error));
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: tables of an earlier report remained beside a later report that had no such tables.
    #[test]
    fn only_files_of_other_results_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = || {
            let entries = std::fs::read_dir(folder.path()).expect("the folder");
            let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
            names.sort();
            names
        };
        std::fs::write(folder.path().join("mine.csv"), "").expect("space");
        let text = |exists: bool| exists.then(|| "a,b\n".to_owned());
        let files = |one, two| vec![("one.csv", text(one)), ("two.csv", text(two))];
        assert_eq!(write(folder.path(), &1, files(true, true)).expect("space").len(), 3);
        assert_eq!(names(), ["mine.csv", "one.csv", "results.json", "two.csv"]);
        assert_eq!(write(folder.path(), &2, files(false, true)).expect("space").len(), 2);
        assert_eq!(names(), ["mine.csv", "results.json", "two.csv"]);
    }
}
