//! `forebay usecase`: a use case's configuration as text.

use std::io::Write;

use crate::printed;

/// Prints the configuration of the use case `name` with the parameters in `sets`.
pub(crate) fn print(name: &str, sets: &[String]) -> anyhow::Result<()> {
    let name = name.strip_prefix("usecase:").unwrap_or(name);
    let source = forebay_pipeline::usecase(name, sets)?;
    // Accept only parameters of the use case. Other settings would have to be merged into the text, which would lose
    // its layout.
    let known =
        || forebay_pipeline::usecases().iter().filter(|case| case.name == name).flat_map(|case| case.parameters);
    for set in sets {
        let key = set.split('=').next().unwrap_or_default().trim();
        if known().all(|parameter| parameter.name != key) {
            let names: Vec<_> = known().map(|parameter| parameter.name).collect();
            let near = forebay_pipeline::nearest(key, names.iter().copied());
            anyhow::bail!("usecase:{name} has no parameter '{key}'{near}; allowed are {}", names.join(", "));
        }
    }
    Ok(write!(printed::out(), "{}", source.text())?)
}
