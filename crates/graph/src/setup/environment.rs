//! The facts, files and objects that all modules of one pipeline share while they are created.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

use forebay_packet::{PoolOptions, Word};
use forebay_units::Frequency;

use super::claim::Claim;
use super::error::SetupError;
use super::shared_objects::SharedObjects;
use crate::files::{Files, check_in_folders};

/// The facts, files and objects that all modules of one pipeline share while they are created.
pub struct SetupEnvironment {
    /// The frequency of the clock's ticks.
    pub frequency: Frequency,
    /// The largest batch, in packets.
    pub batch: usize,
    /// The longest frame that a packet holds, in bytes.
    pub frame: usize,
    /// The pipeline's seed. All random numbers derive from it and the module's name.
    pub seed: u64,
    /// A random number that is unknown outside the process, for runs in real time.
    /// [`Setup::secret`](super::Setup::secret) derives from it and the module's name.
    pub secret: u64,
    /// Whether time is simulated. Calls then take configured costs, and no code may wait for a real clock.
    pub simulated: bool,
    /// Whether all incoming packets wait until a worker takes them ([`DeclarePort::waits`](crate::DeclarePort::waits)).
    pub input_waits: bool,
    /// Whether functions are created only to check the configuration. Then they must not touch the files that they
    /// would write.
    pub checking: bool,
    /// Whether the configuration replaces a running pipeline. The running pipeline may hold files open that have been
    /// renamed since.
    pub replaces_running: bool,
    /// The share of the sessions for the object that is being created, numbered from 0, and the number of shares. If
    /// one worker has all sessions, this is `(0, 1)`.
    pub share: (usize, usize),
    /// Metadata words by name.
    pub words: BTreeMap<String, Word>,
    /// The names of the metadata words that functions use without a parameter.
    pub own_words: BTreeSet<String>,
    /// The metadata words that parameters name: the module, the parameter and the word.
    pub named_words: Vec<(String, String, String)>,
    /// The files that the configuration names.
    pub files: SetupFiles,
    /// The states and other objects that modules share.
    pub objects: SharedObjects,
}

impl SetupEnvironment {
    /// Creates an environment without shared objects. Relative file names refer to the current folder.
    #[must_use]
    pub fn new(frequency: Frequency) -> Self {
        Self {
            frequency,
            batch: 32,
            frame: PoolOptions::default().frame,
            seed: 1,
            secret: RandomState::new().build_hasher().finish(),
            simulated: false,
            input_waits: false,
            checking: false,
            replaces_running: false,
            share: (0, 1),
            words: BTreeMap::new(),
            own_words: BTreeSet::new(),
            named_words: Vec::new(),
            files: SetupFiles::default(),
            objects: SharedObjects::default(),
        }
    }
}

/// The files of a pipeline that is being created.
#[derive(Default)]
pub struct SetupFiles {
    /// The folder that relative file names in the configuration refer to.
    pub base: PathBuf,
    /// The folders that all named files must be in. `None`: files may be in any folder.
    pub allowed_folders: Option<Vec<PathBuf>>,
    /// The files that are read and written.
    pub used: Files,
    /// The files that objects would use if they were not only [checked](SetupEnvironment::checking).
    pub claims: Vec<Claim>,
    /// The files that were read while objects were created: the reader's name and the path.
    pub reads: RefCell<Vec<(String, PathBuf)>>,
}

impl SetupFiles {
    /// Returns the path of the file that the parameter `parameter` names.
    ///
    /// # Errors
    /// An empty name, or a file outside the [allowed folders](Self::allowed_folders).
    pub(super) fn path(&self, parameter: &str, name: &str) -> Result<PathBuf, SetupError> {
        if name.is_empty() {
            return Err(SetupError::with_hint(parameter, "the file name is empty", "name a file"));
        }
        let path = self.base.join(Path::new(name));
        if let Some(folders) = &self.allowed_folders {
            check_in_folders(&path, name, folders).map_err(|error| SetupError::at(parameter, error))?;
        }
        Ok(path)
    }
}
