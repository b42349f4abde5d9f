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

/// " (did you mean 'x'?)" where one of `names` is nearly `wrong`, else nothing.
pub(crate) fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    // A third of the letters may differ.
    let most = 1.max(wrong.chars().count() / 3);
    let lower = wrong.to_lowercase();
    let near = names.into_iter().map(|name| (strsim::osa_distance(&lower, &name.to_lowercase()), name));
    let best = near.min().filter(|(distance, _)| *distance <= most);
    best.map_or_else(String::new, |(_, name)| format!(" (did you mean '{name}'?)"))
}
