//! State of an association that outlasts a configuration: its sequence numbers and its usage.
//!
//! A changed configuration builds new functions. An association that has the same index and key as in the configuration
//! before continues where it was. Sequence numbers that started again would look like replayed packets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use forebay_aead::Fingerprint;
use forebay_graph::{Setup, SetupError};

/// States of the associations in use, by index and key.
pub(crate) struct Lasting<T> {
    states: Mutex<HashMap<(u32, Fingerprint), Weak<T>>>,
}

impl<T: Send + Sync + 'static> Lasting<T> {
    /// Returns the states of one direction, called `name`, of this module. Successive configurations share them.
    pub(crate) fn of(name: &str, setup: &mut Setup<'_>) -> Result<Arc<Self>, SetupError> {
        let name = format!("states of {name} of the module {}", setup.name());
        setup.lasting(&name, |_| Ok(Self { states: Mutex::default() }))
    }

    /// Returns the state of an association: the existing one if it is still in use and `fits` accepts it, otherwise a
    /// new one.
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
        // States that are no longer in use are removed before the map would grow.
        if states.len() == states.capacity() {
            states.retain(|_, state| state.strong_count() > 0);
        }
        let state = Arc::new(make());
        states.insert((spi, key), Arc::downgrade(&state));
        state
    }
}
