//! Which files would be used, as who is only checked says.

use std::path::PathBuf;

use crate::files::Files;

/// A file that something would use, were it not only checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What the module or port is called.
    pub name: String,
    /// The parameter that names the file.
    pub parameter: String,
    /// Who uses it, as others are told.
    pub who: String,
    /// The file.
    pub path: PathBuf,
    pub(super) how: Usage,
}

/// How a file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    Read,
    Written,
    AddedTo,
    /// Not a file: the standard input.
    Input,
}

impl Claim {
    /// Whether the file is written.
    #[must_use]
    pub fn writes(&self) -> bool {
        matches!(self.how, Usage::Written | Usage::AddedTo)
    }

    /// Notes it.
    ///
    /// # Errors
    /// In words: somebody else uses the file.
    pub fn note(&self, files: &mut Files) -> Result<(), String> {
        match self.how {
            Usage::Input => files.claim_input(&self.who),
            Usage::AddedTo => files.claim_on(&self.who, &self.path),
            how => files.claim(&self.who, &self.path, how == Usage::Written),
        }
    }
}
