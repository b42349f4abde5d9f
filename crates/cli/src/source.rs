//! What a command line names: a configuration file or a use case.

use std::path::Path;

use forebay_pipeline::{Problems, Source, usecase};

/// The text that `pipeline` names, with settings.
pub(crate) fn source(pipeline: &str, sets: &[String]) -> Result<Source, Problems> {
    match pipeline.strip_prefix("usecase:") {
        Some(name) => usecase(name, sets),
        None => Ok(sets.iter().fold(Source::read(Path::new(pipeline))?, Source::set)),
    }
}
