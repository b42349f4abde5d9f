//! The header of every experiment's results.

use jiff::Timestamp;
use serde::Serialize;

/// The experiment, the version of Forebay and the time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Header {
    /// The name of the experiment.
    pub experiment: &'static str,
    /// The version of Forebay.
    pub forebay: &'static str,
    /// The time at which the experiment began.
    pub at: Timestamp,
    /// Whether runs were few and short. The results of a short experiment are not reliable.
    pub short: bool,
}

impl Header {
    /// Returns the header of an experiment that begins now.
    pub(crate) fn now(experiment: &'static str, short: bool) -> Self {
        Self { experiment, forebay: env!("CARGO_PKG_VERSION"), at: Timestamp::now(), short }
    }

    /// Returns names and values for the report.
    pub(crate) fn facts(&self) -> [(String, String); 2] {
        [("Forebay".to_owned(), self.forebay.to_owned()), ("Begun".to_owned(), self.at.to_string())]
    }
}
