//! Reads and claims the files that a configuration names.

use std::path::{Path, PathBuf};

use super::claim::Usage;
use super::{Claim, Setup, SetupError};

impl Setup<'_> {
    /// Returns the folder that relative file names refer to: the configuration's folder.
    #[must_use]
    pub fn base(&self) -> &Path {
        &self.environment.files.base
    }

    /// Returns whether a check looks at the files that would be written. It does not if the configuration replaces a
    /// running pipeline, because this pipeline may have such a file open under another name.
    #[must_use]
    pub fn looks_at_files(&self) -> bool {
        !(self.environment.checking && self.environment.replaces_running)
    }

    /// Returns whether the object is created only to check a configuration that replaces no running pipeline. A state
    /// then checks the files that its modules will write.
    #[must_use]
    pub fn checks_files(&self) -> bool {
        self.environment.checking && !self.environment.replaces_running
    }

    /// Returns the path of a file without claiming it: a module will claim the file. `parameter` is the parameter that
    /// names it.
    ///
    /// # Errors
    /// An empty name, or a file outside the [allowed folders](SetupFiles::allowed_folders).
    pub fn unclaimed_path(&self, parameter: &str, name: &str) -> Result<PathBuf, SetupError> {
        self.environment.files.path(parameter, name)
    }

    /// Returns the path of a file that is read while the object is created. No other user may write the file.
    /// `parameter` is the parameter that names it. Relative names refer to the configuration's folder.
    ///
    /// # Errors
    /// An empty name, or a file outside the [allowed folders](SetupFiles::allowed_folders).
    pub fn path(&self, parameter: &str, name: &str) -> Result<PathBuf, SetupError> {
        let path = self.environment.files.path(parameter, name)?;
        self.environment.files.reads.borrow_mut().push((self.name.to_owned(), path.clone()));
        Ok(path)
    }

    /// Claims a file for reading, or for writing if `written`, and returns its path. While it is claimed for reading,
    /// no one else may write it; while it is claimed for writing, no one else may use it. `parameter` is the parameter
    /// that names the file.
    ///
    /// # Errors
    /// The file has a conflicting user. While a configuration is only checked, conflicts are found
    /// [later](SetupFiles::claims), when all users are known.
    pub fn claim(&mut self, parameter: &str, name: &str, written: bool) -> Result<PathBuf, SetupError> {
        let how = if written { Usage::Written } else { Usage::Read };
        self.claim_for(format!("'{}'", self.name), parameter, name, how)
    }

    /// Claims a file for appending, and returns its path. This is like [`claim`](Self::claim) for writing, with one
    /// exception: a user of the same name in the running configuration that appends to the same file is no conflict.
    ///
    /// # Errors
    /// See [`claim`](Self::claim).
    pub fn claim_to_append(&mut self, parameter: &str, name: &str) -> Result<PathBuf, SetupError> {
        self.claim_for(format!("'{}'", self.name), parameter, name, Usage::Appended)
    }

    /// Claims a file of the shared state called `state` for appending. All modules that name the state append to the
    /// file together.
    ///
    /// # Errors
    /// See [`claim`](Self::claim).
    pub fn claim_to_append_for(&mut self, state: &str, parameter: &str, name: &str) -> Result<PathBuf, SetupError> {
        self.claim_for(format!("state '{state}'"), parameter, name, Usage::Appended)
    }

    /// Claims the standard input, which the parameter `parameter` names, for reading.
    ///
    /// # Errors
    /// See [`claim`](Self::claim).
    pub fn claim_input(&mut self, parameter: &str) -> Result<(), SetupError> {
        self.claim_for(format!("'{}'", self.name), parameter, "-", Usage::Input).map(|_| ())
    }

    /// Claims the file `name` for the user `who`. While a configuration is only checked, the claim is only collected.
    fn claim_for(&mut self, who: String, parameter: &str, name: &str, how: Usage) -> Result<PathBuf, SetupError> {
        let checking = self.environment.checking;
        let files = &mut self.environment.files;
        let path = match how {
            Usage::Input => PathBuf::from(name),
            _ => files.path(parameter, name)?,
        };
        let (name, parameter) = (self.name.to_owned(), parameter.to_owned());
        let claim = Claim { name, parameter, who, path: path.clone(), how };
        if checking {
            files.claims.push(claim);
        } else {
            claim.note(&mut files.used).map_err(|message| SetupError::at(claim.parameter, message))?;
        }
        Ok(path)
    }
}
