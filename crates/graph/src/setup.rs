//! What a function or port is given when it is made.

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

use crate::files::Files;
use crate::gate::MAX_GATES;
use crate::own::Own;
use crate::table::Table;
use crate::telemetry::OwnCounters;
pub use claim::Claim;
use claim::Usage;
pub use error::{Fault, SetupError};
pub use state::{DeclareState, StateDeclaration, states};

/// What the keys of [`Setup::once_a_module`] begin with; the module's name and a space follow.
pub const ONCE_A_MODULE: &str = "module ";

/// What the keys of [`Setup::lasting`] begin with.
pub const LASTING: &str = "lasting ";

/// What the keys of [`Setup::handed_on`] begin with.
const HANDED_ON: &str = "handed on ";

/// What the keys of [`Setup::own`] begin with; of how many shares the worker has one, the key and which share follow.
const OWN: &str = "handed on own ";

/// A named object that modules share: both directions' NAT table, say.
pub type SharedState = Arc<dyn Any + Send + Sync>;

/// What every module of one pipeline shares while it is being made.
pub struct Surroundings {
    /// What relative file names in the configuration are relative to.
    pub base: PathBuf,
    /// What a tick is worth.
    pub frequency: Frequency,
    /// The largest batch.
    pub batch: usize,
    /// The longest frame that a packet holds, in bytes.
    pub frame: usize,
    /// The pipeline's seed: everything random derives from it and the module's name.
    pub seed: u64,
    /// What nobody outside knows, where time is real; [`Setup::secret`] derives from it and the module's name.
    pub secret: u64,
    /// Whether time is simulated: calls are charged given costs, and nothing may wait for a real clock.
    pub simulated: bool,
    /// Whether all packets that enter wait until a worker takes them
    /// ([`DeclarePort::waits`](crate::DeclarePort::waits)).
    pub input_waits: bool,
    /// Whether functions are made only to be checked, and must leave files that they would write alone.
    pub checking: bool,
    /// Whether a running pipeline is followed, which has files open that may have been moved since.
    pub follows: bool,
    /// Which share of the sessions what is being made gets, of how many.
    pub share: (usize, usize),
    /// Which files are read and written.
    pub files: Files,
    /// Files that would be used, as functions and the like said that were only [checked](Self::checking).
    pub claims: Vec<Claim>,
    /// Files that have been read while functions and the like were made: by whom, and where.
    pub reads: RefCell<Vec<(String, PathBuf)>>,
    /// Metadata words by name.
    pub words: BTreeMap<String, Word>,
    /// Shared state by name.
    pub state: BTreeMap<String, SharedState>,
    /// The names of shared state that is defined and could not be made: what is wrong is told where it is defined.
    pub broken: BTreeSet<String>,
    /// The names of shared state that somebody has asked for.
    pub asked: RefCell<BTreeSet<String>>,
    /// Tables that modules with equal parameters share, by what they were made from ([`Setup::once`]).
    pub made: BTreeMap<String, SharedState>,
    /// What is [handed on](Setup::handed_on) and has been asked for, by [what it is kept as](kept_as): the name of the state,
    /// or of the module, whose it is.
    pub kept: BTreeMap<String, String>,
}

/// What something made is kept as, by its key in [`Surroundings::made`], for the configuration that follows: all shares of
/// one table as the same, since a configuration that is checked asks for the first one whatever is taken over. `None` of
/// what is not [handed on](Setup::handed_on).
#[must_use]
pub fn kept_as(key: &str) -> Option<&str> {
    let all = if key.starts_with(OWN) { key.rsplit_once(' ').map_or(key, |(all, _)| all) } else { key };
    key.starts_with(HANDED_ON).then_some(all)
}

impl Surroundings {
    /// Nothing shared yet; files are looked for in the present folder.
    #[must_use]
    pub fn new(frequency: Frequency) -> Self {
        let (words, state) = (BTreeMap::new(), BTreeMap::new());
        Self {
            base: PathBuf::new(),
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

/// What a function or port is given when it is made, and what it says back.
pub struct Setup<'a> {
    shared: &'a mut Surroundings,
    name: &'a str,
    gates: Vec<String>,
    counters: Vec<OwnCounters>,
    tables: Vec<(String, Arc<dyn Table>)>,
    holds: Option<(&'static str, usize)>,
    provisional: bool,
    /// The shared state that was asked for last.
    state: RefCell<Option<String>>,
}

impl<'a> Setup<'a> {
    /// The setup of the module or port called `name`.
    #[must_use]
    pub fn new(name: &'a str, shared: &'a mut Surroundings) -> Self {
        let (counters, tables) = (Vec::new(), Vec::new());
        let gates = vec!["0".to_owned()];
        Self { shared, name, gates, counters, tables, holds: None, provisional: false, state: RefCell::default() }
    }

    /// What the module or port is called.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name
    }

    /// What a tick is worth.
    #[must_use]
    pub fn frequency(&self) -> Frequency {
        self.shared.frequency
    }

    /// The largest batch that the module will be given.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.shared.batch
    }

    /// The longest frame that a packet holds, in bytes.
    #[must_use]
    pub fn frame(&self) -> usize {
        self.shared.frame
    }

    /// Whether time is simulated ([`Surroundings::simulated`]).
    #[must_use]
    pub fn simulated(&self) -> bool {
        self.shared.simulated
    }

    /// Whether a worker may wait and loses no packet by it: time is simulated, or all packets that enter
    /// [wait](Surroundings::input_waits) for it.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.shared.simulated || self.shared.input_waits
    }

    /// Which share of the sessions this module or port gets, of how many ([`share`](crate::share)): the others are other
    /// workers'. `(0, 1)` where one has them all.
    #[must_use]
    pub fn share(&self) -> (usize, usize) {
        self.shared.share
    }

    /// Whether the function is made only to be checked ([`Surroundings::checking`]). One that asks, and leaves a file
    /// alone for it, is made once more before it runs.
    #[must_use]
    pub fn checking(&mut self) -> bool {
        self.provisional |= self.shared.checking;
        self.shared.checking
    }

    /// Whether a file that would be written is to be looked at: not where it is only checked what would follow a running
    /// pipeline, which may have it open, wherever it is now.
    #[must_use]
    pub fn looks_at_files(&self) -> bool {
        !(self.shared.checking && self.shared.follows)
    }

    /// The module's own seed, from the pipeline's seed and the module's name (FNV-1a).
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.named(self.shared.seed)
    }

    /// What tables that outsiders fill are hashed with: the module's own, drawn by the system where time is real, so that
    /// nobody who sends packets can aim at one place. Where time is simulated it is the seed.
    #[must_use]
    pub fn secret(&self) -> u64 {
        self.named(if self.shared.simulated { self.shared.seed } else { self.shared.secret })
    }

    fn named(&self, seed: u64) -> u64 {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        self.name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325 ^ seed, step)
    }

    /// A file named in the configuration that is read while this is made: nobody may write it. Relative names are relative
    /// to the configuration's own folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        let path = self.shared.base.join(Path::new(name));
        self.shared.reads.borrow_mut().push((self.name.to_owned(), path.clone()));
        path
    }

    /// What relative file names are relative to: the configuration's own folder.
    #[must_use]
    pub fn base(&self) -> &Path {
        &self.shared.base
    }

    /// The path of a file that is to be read (or `written`), which nobody else may write (or use). `parameter` is the one
    /// that names it.
    ///
    /// # Errors
    /// Somebody else does. (While a configuration is only checked, that is [asked](Surroundings::claims) once all is known.)
    pub fn claim(&mut self, parameter: &str, name: &str, written: bool) -> Result<PathBuf, SetupError> {
        let how = if written { Usage::Written } else { Usage::Read };
        self.claim_for(format!("'{}'", self.name), parameter, name, how)
    }

    /// The path of a file that is added to: as [`claim`](Self::claim) of one that is written, but that who has this one's name
    /// in the configuration before, and adds to it, is no other.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub fn claim_on(&mut self, parameter: &str, name: &str) -> Result<PathBuf, SetupError> {
        self.claim_for(format!("'{}'", self.name), parameter, name, Usage::AddedTo)
    }

    /// Notes that the parameter `parameter` names the standard input, and that this one reads it.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub fn claim_input(&mut self, parameter: &str) -> Result<(), SetupError> {
        self.claim_for(format!("'{}'", self.name), parameter, "-", Usage::Input).map(|_| ())
    }

    /// The same for a file of the shared state called `state`, which all modules that name it add to together.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub fn claim_on_for(&mut self, state: &str, parameter: &str, name: &str) -> Result<PathBuf, SetupError> {
        self.claim_for(format!("state '{state}'"), parameter, name, Usage::AddedTo)
    }

    fn claim_for(&mut self, who: String, parameter: &str, name: &str, how: Usage) -> Result<PathBuf, SetupError> {
        let path = self.shared.base.join(Path::new(name));
        let (name, parameter) = (self.name.to_owned(), parameter.to_owned());
        let claim = Claim { name, parameter, who, path: path.clone(), how };
        if self.shared.checking {
            self.shared.claims.push(claim);
        } else {
            claim.note(&mut self.shared.files).map_err(|message| SetupError::at(claim.parameter, message))?;
        }
        Ok(path)
    }

    /// The metadata word that functions know as `name`: the same for all that ask for it.
    ///
    /// # Errors
    /// More than [`WORDS`] names in one pipeline.
    pub fn word(&mut self, name: &str) -> Result<Word, SetupError> {
        if let Some(word) = self.shared.words.get(name) {
            return Ok(*word);
        }
        let word = Word::new(self.shared.words.len()).ok_or_else(|| {
            let taken: Vec<_> = self.shared.words.keys().map(String::as_str).collect();
            let taken = taken.join(", ");
            SetupError::new(format!("no metadata word is left for '{name}': a pipeline has {WORDS}, taken by {taken}"))
        })?;
        self.shared.words.insert(name.to_owned(), word);
        Ok(word)
    }

    /// The kind of the state with this name, where there is one.
    #[must_use]
    pub fn state_kind(&self, name: &str) -> Option<&'static str> {
        let state = self.shared.state.get(name)?;
        states().into_iter().find(|kind| (kind.is)(state)).map(|kind| kind.name)
    }

    /// The shared state called `name`, which must be a `T`.
    ///
    /// # Errors
    /// No state of that name, or one of another kind; `path` is the parameter that named it. No fault at all where it is defined
    /// and could not be made, which is told already.
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
            let kind = kind.map_or_else(|| "of another kind".to_owned(), |kind| format!("a '{}'", kind.name));
            SetupError::at(path, format!("the state '{name}' is {kind}: allowed is a '{}'", T::NAME))
        })
    }

    /// What `make` makes, once for all modules that ask for the same `key`: a table that never changes, made of equal
    /// parameters, is held and built once. Only what needs no module's name may be made so.
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

    /// Names the module's output gates, in order. Without a call there is one, `0`.
    ///
    /// # Errors
    /// None at all, too many, or two of one name.
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

    /// Says how many packets the module [holds](crate::Context::hold) at most, as its `parameter` has it: they must leave some of
    /// the pool for those that come.
    pub fn holds(&mut self, parameter: &'static str, most: usize) {
        self.holds = Some((parameter, most));
    }

    /// Counters of the function's own, shown with the module's: one for each of `names`, under the heading `kind`. What those
    /// of a changed configuration count is added to what was counted before.
    pub fn counters(&mut self, kind: &str, names: impl IntoIterator<Item = String>) -> Arc<[Counter]> {
        self.show(kind, names, (false, false))
    }

    /// The same with one counter per rule or table entry. Reports have them only on request: there may be thousands.
    pub fn entry_counters(&mut self, kind: &str, names: impl IntoIterator<Item = String>) -> Arc<[Counter]> {
        self.show(kind, names, (false, true))
    }

    /// The same for what is so now (how much there is of something), and for what is counted of something that outlasts the
    /// function, as state does: where the module is made anew, nothing of the values before is added.
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

    /// What `make` makes, once for as long as the pipeline runs: a changed configuration finds it as it is, also where one
    /// between had no use for it. So it is for what is small and must not begin anew: how often a key was used.
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

    /// What `make` makes, once for as long as configurations that follow each other ask for the same `key`: each finds it as the
    /// one before it left it. One that does not ask ends it. The key says what it is made of, so that what is made of something
    /// else is another.
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

    /// The same, once for each worker that asks for the same `key`.
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
        let whose = self.state.borrow().clone().unwrap_or_else(|| self.name.to_owned());
        self.shared.kept.extend(kept_as(key).map(|kept| (kept.to_owned(), whose)));
        self.once(key, make)
    }

    /// Hands out a table, called `name`, that may be changed while packets run.
    pub fn table(&mut self, name: &str, table: Arc<dyn Table>) {
        self.tables.push((name.to_owned(), table));
    }

    /// What `make` makes, once for all replicas of this module: those that are made under its name, of the same `key`. A
    /// table that the control plane changes is one, whatever the number of workers. Gauges that `make` asks for belong to what
    /// is made: whoever finds it shows them, also where it was made for a function that was only checked, or that is gone.
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
            let what = Arc::new(make(setup)?);
            Ok(OnceAModule { what, shown: setup.counters.split_off(before) })
        })?;
        self.counters.extend(made.shown.iter().cloned());
        Ok(Arc::clone(&made.what))
    }

    /// What the function said: its gates' names, its own counters, its tables and what it holds.
    #[must_use]
    pub fn finish(self) -> Declared {
        let Self { gates, counters, tables, holds, provisional, .. } = self;
        Declared { gates, counters, tables, holds, provisional }
    }
}

/// What replicas of a module share, and the gauges that tell of it.
struct OnceAModule<T> {
    what: Arc<T>,
    shown: Vec<OwnCounters>,
}

/// What a function said of itself while it was made.
pub struct Declared {
    /// Its gates' names, in order.
    pub gates: Vec<String>,
    /// Its own counters.
    pub counters: Vec<OwnCounters>,
    /// Its tables that may be changed while packets run, by name.
    pub tables: Vec<(String, Arc<dyn Table>)>,
    /// How many packets it holds at most, and the parameter that says so.
    pub holds: Option<(&'static str, usize)>,
    /// Whether it left something undone because it was only checked ([`Setup::checking`]).
    pub provisional: bool,
}
