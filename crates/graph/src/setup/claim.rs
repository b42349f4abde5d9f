//! The files that a module or port would use. Checks of a configuration collect them.

use std::path::PathBuf;

use crate::files::Files;

/// A file that a module or port uses, or would use if it were not only checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The name of the module or port.
    pub name: String,
    /// The parameter that names the file.
    pub parameter: String,
    /// The user of the file, as other error messages name it.
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
    /// Lines are appended. A user of the same name in the next configuration may continue to append.
    Appended,
    /// Not a file: the standard input.
    Input,
}

impl Claim {
    /// Returns whether the file is written.
    #[must_use]
    pub fn writes(&self) -> bool {
        matches!(self.how, Usage::Written | Usage::Appended)
    }

    /// Registers the claim in `files`.
    ///
    /// # Errors
    /// A text for the user, if another user writes the file, or if this claim is for writing and another user uses the
    /// file. Also if this claim is for the standard input and another user reads it, or has read it: the standard input
    /// may have only one reader in a run.
    pub fn note(&self, files: &mut Files) -> Result<(), String> {
        match self.how {
            Usage::Input => files.claim_input(&self.who),
            Usage::Appended => files.claim_on(&self.who, &self.path),
            how => files.claim(&self.who, &self.path, how == Usage::Written),
        }
    }
}
