//! The setup of a function, port or shared state while it is created.

mod claim;
mod error;
mod state;

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_measure::Counter;
use forebay_packet::{PoolOptions, WORDS, Word};
use forebay_units::Frequency;

use crate::files::{Files, check_in_folders};
use crate::gate::MAX_GATES;
use crate::own::Own;
use crate::table::Table;
use crate::telemetry::OwnCounters;
pub use claim::Claim;
use claim::Usage;
pub use error::{Fault, SetupError};
pub use state::{DeclareState, StateDeclaration, states};

/// The prefix of the keys of [`Setup::once_a_module`]. The module's name and a space follow it.
pub const ONCE_A_MODULE: &str = "module ";

/// The prefix of the keys of [`Setup::lasting`].
pub const LASTING: &str = "lasting ";

/// The prefix of the keys of [`Setup::handed_on`].
const HANDED_ON: &str = "handed on ";

/// The prefix of the keys of [`Setup::own`]. The number of shares, the key and the worker's share follow it.
const OWN: &str = "handed on own ";

/// A named object that modules share, for example the NAT table of both directions.
pub type SharedState = Arc<dyn Any + Send + Sync>;

/// The data that all modules of one pipeline share while they are created.
pub struct Surroundings {
    /// The folder that relative file names in the configuration refer to.
    pub base: PathBuf,
    /// The folders that all named files must be in. `None`: files may be in any folder.
    pub allowed_folders: Option<Vec<PathBuf>>,
    /// The frequency of the clock's ticks.
    pub frequency: Frequency,
    /// The largest batch, in packets.
    pub batch: usize,
    /// The longest frame that a packet holds, in bytes.
    pub frame: usize,
    /// The pipeline's seed. All random numbers derive from it and the module's name.
    pub seed: u64,
    /// A random number that is unknown outside the process, for runs in real time. [`Setup::secret`] derives from it
    /// and the module's name.
    pub secret: u64,
    /// Whether time is simulated. Calls then take configured costs, and no code may wait for a real clock.
    pub simulated: bool,
    /// Whether all incoming packets wait until a worker takes them ([`DeclarePort::waits`](crate::DeclarePort::waits)).
    pub input_waits: bool,
    /// Whether functions are created only to check the configuration. They must not touch the files that they would
    /// write.
    pub checking: bool,
    /// Whether the configuration replaces a running pipeline. The running pipeline may hold files open that have been
    /// renamed since.
    pub follows: bool,
    /// The share of the sessions for the object that is being created, and the number of shares.
    pub share: (usize, usize),
    /// The files that are read and written.
    pub files: Files,
    /// The files that checked objects would use ([`checking`](Self::checking)).
    pub claims: Vec<Claim>,
    /// The files that were read while objects were created: the reader's name and the path.
    pub reads: RefCell<Vec<(String, PathBuf)>>,
    /// Metadata words by name.
    pub words: BTreeMap<String, Word>,
    /// Shared state, by name.
    pub state: BTreeMap<String, SharedState>,
    /// The names of shared states that are defined but could not be created. The fault is reported at the definition.
    pub broken: BTreeSet<String>,
    /// The names of shared states that some module has requested.
    pub asked: RefCell<BTreeSet<String>>,
    /// Objects that modules with equal parameters share, by the key that describes their content ([`Setup::once`]).
    pub made: BTreeMap<String, SharedState>,
    /// The [handed-on](Setup::handed_on) objects that were requested, by [`kept_as`]. The value is the name of the
    /// state or module that owns the object.
    pub kept: BTreeMap<String, String>,
}

/// Returns the name under which an object is kept for the next configuration, from its key in [`Surroundings::made`].
/// All shares of one table have the same name, because a check of a configuration always requests the first share.
/// Returns `None` if the object is not [handed on](Setup::handed_on).
#[must_use]
pub fn kept_as(key: &str) -> Option<&str> {
    let all = if key.starts_with(OWN) { key.rsplit_once(' ').map_or(key, |(all, _)| all) } else { key };
    key.starts_with(HANDED_ON).then_some(all)
}

impl Surroundings {
    /// Creates surroundings without shared objects. Relative file names refer to the current folder.
    #[must_use]
    pub fn new(frequency: Frequency) -> Self {
        let (words, state) = (BTreeMap::new(), BTreeMap::new());
        Self {
            base: PathBuf::new(),
            allowed_folders: None,
            frequency,
            batch: 32,
            frame: PoolOptions::default().frame,
            seed: 1,
            secret: RandomState::new().build_hasher().finish(),
            simulated: false,
            input_waits: false,
            checking: false,
            follows: false,
            share: (0, 1),
            files: Files::default(),
            claims: Vec::new(),
            reads: RefCell::default(),
            words,
            state,
            broken: BTreeSet::new(),
            asked: RefCell::default(),
            made: BTreeMap::new(),
            kept: BTreeMap::new(),
        }
    }
}

/// The setup of a function, port or shared state while it is created. It gives access to facts about the run, to files
/// and to shared state, and registers gates, counters and tables.
pub struct Setup<'a> {
    shared: &'a mut Surroundings,
    name: &'a str,
    gates: Vec<String>,
    counters: Vec<OwnCounters>,
    tables: Vec<(String, Arc<dyn Table>)>,
    holds: Option<(&'static str, usize)>,
    provisional: bool,
    /// The shared state that was requested last.
    state: RefCell<Option<String>>,
}

impl<'a> Setup<'a> {
    /// Creates the setup of the module or port called `name`.
    #[must_use]
    pub fn new(name: &'a str, shared: &'a mut Surroundings) -> Self {
        let (counters, tables) = (Vec::new(), Vec::new());
        let gates = vec!["0".to_owned()];
        Self { shared, name, gates, counters, tables, holds: None, provisional: false, state: RefCell::default() }
    }

    /// Returns the name of the module or port.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name
    }

    /// Returns the frequency of the clock's ticks.
    #[must_use]
    pub fn frequency(&self) -> Frequency {
        self.shared.frequency
    }

    /// Returns the size of the largest batch that the module will process.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.shared.batch
    }

    /// Returns the length of the longest frame that a packet holds, in bytes.
    #[must_use]
    pub fn frame(&self) -> usize {
        self.shared.frame
    }

    /// Returns whether time is simulated ([`Surroundings::simulated`]).
    #[must_use]
    pub fn simulated(&self) -> bool {
        self.shared.simulated
    }

    /// Returns whether a worker may wait without losing packets. This is so if time is simulated, or if all incoming
    /// packets [wait](Surroundings::input_waits) for the worker.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.shared.simulated || self.shared.input_waits
    }

    /// Returns the share of the sessions that this module or port processes, and the number of shares
    /// ([`share`](crate::share)). Other workers have the other shares. `(0, 1)` if one worker has all sessions.
    #[must_use]
    pub fn share(&self) -> (usize, usize) {
        self.shared.share
    }

    /// Returns whether the function is created only to check the configuration ([`Surroundings::checking`]). A function
    /// that calls this and therefore skips a file is created a second time before it runs.
    #[must_use]
    pub fn checking(&mut self) -> bool {
        self.provisional |= self.shared.checking;
        self.shared.checking
    }

    /// Returns whether a check looks at the files that would be written. It does not if the configuration replaces a
    /// running pipeline: that pipeline may have a file open under another name.
    #[must_use]
    pub fn looks_at_files(&self) -> bool {
        !(self.shared.checking && self.shared.follows)
    }

    /// Returns the module's own seed, derived from the pipeline's seed and the module's name (FNV-1a).
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.named(self.shared.seed)
    }

    /// Returns the module's hash key for tables whose keys come from packets. In real time the system draws it, so that
    /// no sender can aim packets at one slot. In simulated time it derives from the seed.
    #[must_use]
    pub fn secret(&self) -> u64 {
        self.named(if self.shared.simulated { self.shared.seed } else { self.shared.secret })
    }

    fn named(&self, seed: u64) -> u64 {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        self.name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325 ^ seed, step)
    }

    /// Returns the path of a file that is read while the object is created. No other user may write the file.
    /// `parameter` is the parameter that names it. Relative names refer to the configuration's folder.
    ///
    /// # Errors
    /// A file outside the [allowed folders](Surroundings::allowed_folders).
    pub fn path(&self, parameter: &str, name: &str) -> Result<PathBuf, SetupError> {
        let path = self.allowed_path(parameter, name)?;
        self.shared.reads.borrow_mut().push((self.name.to_owned(), path.clone()));
        Ok(path)
    }

    /// Returns the path of a file.
    ///
    /// # Errors
    /// A file outside the [allowed folders](Surroundings::allowed_folders).
    fn allowed_path(&self, parameter: &str, name: &str) -> Result<PathBuf, SetupError> {
        let path = self.shared.base.join(Path::new(name));
        if let Some(folders) = &self.shared.allowed_folders {
            check_in_folders(&path, name, folders).map_err(|error| SetupError::at(parameter, error))?;
        }
        Ok(path)
    }

    /// Returns the folder that relative file names refer to: the configuration's folder.
    #[must_use]
    pub fn base(&self) -> &Path {
        &self.shared.base
    }

    /// Claims a file for reading, or for writing if `written`, and returns its path. While it is claimed for reading,
    /// no one else may write it; while it is claimed for writing, no one else may use it. `parameter` is the parameter
    /// that names the file.
    ///
    /// # Errors
    /// The file has a conflicting user. While a configuration is only checked, conflicts are found
    /// [later](Surroundings::claims), when all users are known.
    pub fn claim(&mut self, parameter: &str, name: &str, written: bool) -> Result<PathBuf, SetupError> {
        let how = if written { Usage::Written } else { Usage::Read };
        self.claim_for(format!("'{}'", self.name), parameter, name, how)
    }

    /// Claims a file for appending, and returns its path. This is like [`claim`](Self::claim) for writing, with one
    /// exception: a user of the same name in the running configuration that appends to the same file is no conflict.
    ///
    /// # Errors
    /// See [`claim`](Self::claim).
    pub fn claim_on(&mut self, parameter: &str, name: &str) -> Result<PathBuf, SetupError> {
        self.claim_for(format!("'{}'", self.name), parameter, name, Usage::AddedTo)
    }

    /// Claims the standard input, which the parameter `parameter` names, for reading.
    ///
    /// # Errors
    /// See [`claim`](Self::claim).
    pub fn claim_input(&mut self, parameter: &str) -> Result<(), SetupError> {
        self.claim_for(format!("'{}'", self.name), parameter, "-", Usage::Input).map(|_| ())
    }

    /// Claims a file of the shared state called `state` for appending. All modules that name the state append to the
    /// file together.
    ///
    /// # Errors
    /// See [`claim`](Self::claim).
    pub fn claim_on_for(&mut self, state: &str, parameter: &str, name: &str) -> Result<PathBuf, SetupError> {
        self.claim_for(format!("state '{state}'"), parameter, name, Usage::AddedTo)
    }

    fn claim_for(&mut self, who: String, parameter: &str, name: &str, how: Usage) -> Result<PathBuf, SetupError> {
        let path = match how {
            Usage::Input => PathBuf::from(name),
            _ => self.allowed_path(parameter, name)?,
        };
        let (name, parameter) = (self.name.to_owned(), parameter.to_owned());
        let claim = Claim { name, parameter, who, path: path.clone(), how };
        if self.shared.checking {
            self.shared.claims.push(claim);
        } else {
            claim.note(&mut self.shared.files).map_err(|message| SetupError::at(claim.parameter, message))?;
        }
        Ok(path)
    }

    /// Returns the metadata word called `name`. All functions that request the same name share the word.
    ///
    /// # Errors
    /// The pipeline has more than [`WORDS`] names.
    pub fn word(&mut self, name: &str) -> Result<Word, SetupError> {
        if let Some(word) = self.shared.words.get(name) {
            return Ok(*word);
        }
        let word = Word::new(self.shared.words.len()).ok_or_else(|| {
            let taken: Vec<_> = self.shared.words.keys().map(String::as_str).collect();
            let taken = taken.join(", ");
            SetupError::new(format!("no metadata word is free for '{name}': a pipeline has {WORDS}, taken by {taken}"))
        })?;
        self.shared.words.insert(name.to_owned(), word);
        Ok(word)
    }

    /// Returns the type of the state called `name`, if the state exists.
    #[must_use]
    pub fn state_kind(&self, name: &str) -> Option<&'static str> {
        let state = self.shared.state.get(name)?;
        states().into_iter().find(|kind| (kind.is)(state)).map(|kind| kind.name)
    }

    /// Returns the shared state called `name`, which must be a `T`.
    ///
    /// # Errors
    /// The state does not exist or has another type. `path` is the parameter that names it. The error has no faults if
    /// the state is defined but could not be created, because that fault is already reported.
    pub fn state<T: DeclareState>(&self, path: &str, name: &str) -> Result<Arc<T>, SetupError> {
        let Some(state) = self.shared.state.get(name) else {
            if self.shared.broken.contains(name) {
                return Err(SetupError::default());
            }
            let known: BTreeSet<_> = self.shared.state.keys().chain(&self.shared.broken).map(String::as_str).collect();
            let known: Vec<_> = known.into_iter().collect();
            let known =
                if known.is_empty() { "none is defined".to_owned() } else { format!("defined: {}", known.join(", ")) };
            return Err(SetupError::at(path, format!("no state is called '{name}' ({known})")));
        };
        self.shared.asked.borrow_mut().insert(name.to_owned());
        *self.state.borrow_mut() = Some(name.to_owned());
        Arc::clone(state).downcast::<T>().map_err(|state| {
            let kind = states().into_iter().find(|kind| (kind.is)(&state));
            let kind = kind.map_or_else(|| "of another type".to_owned(), |kind| format!("a '{}'", kind.name));
            SetupError::at(path, format!("the state '{name}' is {kind}: allowed is a '{}'", T::NAME))
        })
    }

    /// Creates an object with `make`, once for all modules that request the same `key`. So modules with equal
    /// parameters share one unchanging table. `make` must not depend on the module's name.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn once<T: Any + Send + Sync>(
        &mut self,
        key: &str,
        make: impl FnOnce(&mut Self) -> Result<T, SetupError>,
    ) -> Result<Arc<T>, SetupError> {
        if let Some(made) = self.shared.made.get(key).cloned().and_then(|made| made.downcast().ok()) {
            return Ok(made);
        }
        let made = Arc::new(make(self)?);
        self.shared.made.insert(key.to_owned(), Arc::clone(&made) as SharedState);
        Ok(made)
    }

    /// Names the module's output gates, in order. Without this call the module has one gate, `0`.
    ///
    /// # Errors
    /// No names, too many names, or a duplicate name.
    pub fn gates(&mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Result<(), SetupError> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        if names.is_empty() || names.len() > MAX_GATES {
            return Err(SetupError::new(format!("{} gates: allowed are 1 to {MAX_GATES}", names.len())));
        }
        let mut sorted: Vec<_> = names.iter().collect();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(SetupError::new(format!("two gates are called '{}'", twice[0])));
        }
        self.gates = names;
        Ok(())
    }

    /// Declares how many packets the module [holds](crate::Context::hold) at most, as its parameter `parameter` sets
    /// it. The compiler checks that the rest of the pool suffices for new packets.
    pub fn holds(&mut self, parameter: &'static str, most: usize) {
        self.holds = Some((parameter, most));
    }

    /// Creates the function's own counters, one for each of `names`, under the heading `kind`. Reports show them with
    /// the module's counters. After a change of the configuration their values are added to the earlier ones.
    pub fn counters(&mut self, kind: &str, names: impl IntoIterator<Item = String>) -> Arc<[Counter]> {
        self.show(kind, names, (false, false))
    }

    /// Creates one counter per rule or table entry. Reports show them only on request, because there may be thousands.
    pub fn entry_counters(&mut self, kind: &str, names: impl IntoIterator<Item = String>) -> Arc<[Counter]> {
        self.show(kind, names, (false, true))
    }

    /// Creates gauges. A gauge shows a present value, for example a number of entries, or counts for an object that
    /// outlives the function, for example a shared state. When the module is created again, earlier values are not
    /// added.
    pub fn gauges(&mut self, kind: &str, names: impl IntoIterator<Item = String>) -> Arc<[Counter]> {
        self.show(kind, names, (true, false))
    }

    fn show(
        &mut self,
        kind: &str,
        names: impl IntoIterator<Item = String>,
        (gauges, per_entry): (bool, bool),
    ) -> Arc<[Counter]> {
        let names: Vec<String> = names.into_iter().collect();
        let counters: Arc<[Counter]> = names.iter().map(|_| Counter::new()).collect();
        self.counters.push(OwnCounters {
            heading: kind.to_owned(),
            counters: Arc::clone(&counters),
            names,
            gauges,
            per_entry,
        });
        counters
    }

    /// Creates an object with `make` that lasts as long as the pipeline runs. A changed configuration finds the same
    /// object, even if a configuration in between did not use it. Meant for small objects that must not start from
    /// zero, for example the number of uses of a key.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn lasting<T: Any + Send + Sync>(
        &mut self,
        key: &str,
        make: impl FnOnce(&mut Self) -> Result<T, SetupError>,
    ) -> Result<Arc<T>, SetupError> {
        self.once(&format!("{LASTING}{key}"), make)
    }

    /// Creates an object with `make` that consecutive configurations hand on under the same `key`. Each configuration
    /// finds the object as the previous one left it. A configuration that does not request it drops it. The key must
    /// describe the content: an object made from other parameters needs another key.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn handed_on<T: Any + Send + Sync>(
        &mut self,
        key: &str,
        make: impl FnOnce(&mut Self) -> Result<T, SetupError>,
    ) -> Result<Arc<T>, SetupError> {
        self.keep(&format!("{HANDED_ON}{key}"), make)
    }

    /// Creates an object that is handed on, once for each worker that requests the same `key`.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn own<T: Any + Send>(
        &mut self,
        key: &str,
        make: impl FnOnce(&mut Self) -> Result<T, SetupError>,
    ) -> Result<Arc<Own<T>>, SetupError> {
        let (share, of) = self.share();
        self.keep(&format!("{OWN}{of} {key} {share}"), |setup| make(setup).map(Own::new))
    }

    fn keep<T: Any + Send + Sync>(
        &mut self,
        key: &str,
        make: impl FnOnce(&mut Self) -> Result<T, SetupError>,
    ) -> Result<Arc<T>, SetupError> {
        let owner = self.state.borrow().clone().unwrap_or_else(|| self.name.to_owned());
        self.shared.kept.extend(kept_as(key).map(|kept| (kept.to_owned(), owner)));
        self.once(key, make)
    }

    /// Registers the table called `name`, which may be changed while packets run.
    pub fn table(&mut self, name: &str, table: Arc<dyn Table>) {
        self.tables.push((name.to_owned(), table));
    }

    /// Creates an object with `make`, once for all replicas of this module that request the same `key`. So a table that
    /// the control plane changes exists once, whatever the number of workers. Gauges that `make` creates belong to the
    /// object: every replica that finds the object shows them, even if the replica that created it was only checked or
    /// has been removed.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn once_a_module<T: Any + Send + Sync>(
        &mut self,
        key: &str,
        make: impl FnOnce(&mut Self) -> Result<T, SetupError>,
    ) -> Result<Arc<T>, SetupError> {
        let before = self.counters.len();
        let made = self.once(&format!("{ONCE_A_MODULE}{} {key}", self.name), |setup| {
            let object = Arc::new(make(setup)?);
            Ok(OnceAModule { object, gauges: setup.counters.split_off(before) })
        })?;
        self.counters.extend(made.gauges.iter().cloned());
        Ok(Arc::clone(&made.object))
    }

    /// Returns what the function registered: its gates, counters and tables, and how many packets it holds.
    #[must_use]
    pub fn finish(self) -> Declared {
        let Self { gates, counters, tables, holds, provisional, .. } = self;
        Declared { gates, counters, tables, holds, provisional }
    }
}

/// An object that the replicas of a module share, and its gauges.
struct OnceAModule<T> {
    object: Arc<T>,
    gauges: Vec<OwnCounters>,
}

/// The gates, counters and tables that a function registered while it was created.
pub struct Declared {
    /// The names of its gates, in order.
    pub gates: Vec<String>,
    /// Its own counters.
    pub counters: Vec<OwnCounters>,
    /// Its tables that may be changed while packets run, by name.
    pub tables: Vec<(String, Arc<dyn Table>)>,
    /// How many packets it holds at most, and the parameter that sets this.
    pub holds: Option<(&'static str, usize)>,
    /// Whether it skipped work because it was only checked ([`Setup::checking`]).
    pub provisional: bool,
}
