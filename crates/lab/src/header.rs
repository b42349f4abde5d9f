//! What the results of every experiment begin with.

use jiff::Timestamp;
use serde::Serialize;

/// Which experiment, by which version, when.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Header {
    /// Its name.
    pub experiment: &'static str,
    /// The version of Forebay.
    pub forebay: &'static str,
    /// When it began.
    pub at: Timestamp,
    /// Whether runs were few and short: to see what there is, not to rely on.
    pub short: bool,
}

impl Header {
    /// Of an experiment that begins now.
    pub(crate) fn now(experiment: &'static str, short: bool) -> Self {
        Self { experiment, forebay: env!("CARGO_PKG_VERSION"), at: Timestamp::now(), short }
    }

    /// What a report says of it.
    pub(crate) fn facts(&self) -> [(String, String); 2] {
        [("Forebay".to_owned(), self.forebay.to_owned()), ("Begun".to_owned(), self.at.to_string())]
    }
}
