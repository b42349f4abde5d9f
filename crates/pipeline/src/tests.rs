//! Tests of whole configurations: the errors of wrong ones, with their lines, and the plans of valid ones.

mod checks;
mod folds;
mod functions;
mod hostile;
mod kept;
mod plans;
mod refusals;
mod secrets;
mod shares;

use forebay_units::Frequency;

use crate::problems::Problems;
use crate::{Conditions, Loaded, Source};

/// Loads a text as `test.yaml`.
fn load(text: &str) -> Result<Loaded, Problems> {
    load_source(&Source::new(text, "test.yaml", ""))
}

fn load_source(source: &Source) -> Result<Loaded, Problems> {
    crate::load(source, Conditions { frequency: Frequency::new(1e9), simulated: true })
}
