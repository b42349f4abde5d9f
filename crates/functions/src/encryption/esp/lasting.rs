//! What of an association outlasts a configuration: where its sequence numbers are, and what it has used.
//!
//! A changed configuration makes functions anew. An association that it has as the one before had it, the same index under
//! the same key, goes on where it was: numbers that began again would be taken for packets sent again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use forebay_aead::Fingerprint;
use forebay_graph::{Setup, SetupError};

/// States of associations that somebody has, by index and key.
pub(crate) struct Lasting<T> {
    states: Mutex<HashMap<(u32, Fingerprint), Weak<T>>>,
}

impl<T: Send + Sync + 'static> Lasting<T> {
    /// Those of a direction, called `name`, of all modules and of the configurations that follow each other.
    pub(crate) fn of(name: &str, setup: &mut Setup<'_>) -> Result<Arc<Self>, SetupError> {
        let name = format!("states of {name} of the module {}", setup.name());
        setup.lasting(&name, |_| Ok(Self { states: Mutex::default() }))
    }

    /// That of an association: as it was, where somebody still has it and `fits` says so.
    pub(crate) fn get(
        &self,
        spi: u32,
        key: Fingerprint,
        fits: impl Fn(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = states.get(&(spi, key)).and_then(Weak::upgrade).filter(|state| fits(state)) {
            return state;
        }
        // Those that nobody has any more go whenever there would have to be more room.
        if states.len() == states.capacity() {
            states.retain(|_, state| state.strong_count() > 0);
        }
        let state = Arc::new(make());
        states.insert((spi, key), Arc::downgrade(&state));
        state
    }
}
