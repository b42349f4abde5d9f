//! The setup of a function, port or shared state while it is created.
//!
//! The created object receives a [`Setup`]. The methods of `Setup` are in several source files: this file has the facts
//! about the run, `files` the files, `objects` the objects that modules share, and `declarations` the gates, counters
//! and tables.

mod claim;
mod declarations;
mod declared;
mod environment;
mod error;
mod files;
mod objects;
mod shared_objects;
mod state;

use std::cell::RefCell;

use forebay_packet::{WORDS, Word};
use forebay_units::Frequency;

pub use claim::Claim;
pub use declared::Declared;
pub use environment::{SetupEnvironment, SetupFiles};
pub use error::SetupError;
pub use shared_objects::{HandedOver, ObjectKey, SharedObjects, SharedState};
pub use state::{DeclareState, StateDeclaration, states};

/// The setup of a function, port or shared state while it is created. It gives access to facts about the run, to files
/// and to shared state, and registers gates, counters and tables.
pub struct Setup<'a> {
    environment: &'a mut SetupEnvironment,
    name: &'a str,
    declared: Declared,
    /// The shared state that was requested last.
    requested_state: RefCell<Option<String>>,
}

impl<'a> Setup<'a> {
    /// Creates the setup of the module or port called `name`.
    #[must_use]
    pub fn new(name: &'a str, environment: &'a mut SetupEnvironment) -> Self {
        Self { environment, name, declared: Declared::new(), requested_state: RefCell::default() }
    }

    /// Returns the name of the module or port.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name
    }

    /// Returns the frequency of the clock's ticks.
    #[must_use]
    pub fn frequency(&self) -> Frequency {
        self.environment.frequency
    }

    /// Returns the size of the largest batch that the module will process, in packets.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.environment.batch
    }

    /// Returns the length of the longest frame that a packet holds, in bytes.
    #[must_use]
    pub fn frame(&self) -> usize {
        self.environment.frame
    }

    /// Returns whether time is simulated ([`SetupEnvironment::simulated`]).
    #[must_use]
    pub fn simulated(&self) -> bool {
        self.environment.simulated
    }

    /// Returns whether a worker may wait without losing packets. This is so if time is simulated, or if all incoming
    /// packets [wait](SetupEnvironment::input_waits) for the worker.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.environment.simulated || self.environment.input_waits
    }

    /// Returns the share of the sessions that this module or port processes, and the number of shares
    /// ([`share`](crate::share)). Other workers have the other shares. `(0, 1)` if one worker has all sessions.
    #[must_use]
    pub fn share(&self) -> (usize, usize) {
        self.environment.share
    }

    /// Returns whether the function is created only to check the configuration ([`SetupEnvironment::checking`]). A
    /// function that calls this and therefore skips a file is created a second time before it runs.
    #[must_use]
    pub fn checking(&mut self) -> bool {
        self.declared.provisional |= self.environment.checking;
        self.environment.checking
    }

    /// Returns the module's own seed, derived from the pipeline's seed and the module's name (FNV-1a).
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.named(self.environment.seed)
    }

    /// Returns the module's hash key for tables whose keys come from packets. In real time the system draws it, so that
    /// no sender can aim packets at one slot. In simulated time it derives from the seed.
    #[must_use]
    pub fn secret(&self) -> u64 {
        self.named(if self.environment.simulated { self.environment.seed } else { self.environment.secret })
    }

    /// Returns the FNV-1a hash of the name, started with `seed`.
    fn named(&self, seed: u64) -> u64 {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        self.name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325 ^ seed, step)
    }

    /// Returns the metadata word called `name`. All functions that request the same name share the word.
    ///
    /// # Errors
    /// The pipeline has more than [`WORDS`] names.
    pub fn word(&mut self, name: &str) -> Result<Word, SetupError> {
        self.environment.own_words.insert(name.to_owned());
        self.any_word(name)
    }

    /// Returns the metadata word called `name`, which the parameter `parameter` names. The compiler checks that a
    /// function uses this word.
    ///
    /// # Errors
    /// The pipeline has more than [`WORDS`] names.
    pub fn named_word(&mut self, parameter: &str, name: &str) -> Result<Word, SetupError> {
        let named = (self.name.to_owned(), parameter.to_owned(), name.to_owned());
        self.environment.named_words.push(named);
        self.any_word(name)
    }

    /// Returns the metadata word called `name`, and adds it if it is new.
    fn any_word(&mut self, name: &str) -> Result<Word, SetupError> {
        let words = &mut self.environment.words;
        if let Some(word) = words.get(name) {
            return Ok(*word);
        }
        let word = Word::new(words.len()).ok_or_else(|| {
            let taken: Vec<_> = words.keys().map(String::as_str).collect();
            let taken = taken.join(", ");
            SetupError::new(format!(
                "no metadata word is free for '{name}': allowed are {WORDS} names in a pipeline, which has {taken}"
            ))
        })?;
        words.insert(name.to_owned(), word);
        Ok(word)
    }

    /// Returns the gates, counters and tables that the function registered, and how many packets it holds at most.
    #[must_use]
    pub fn finish(self) -> Declared {
        self.declared
    }
}
