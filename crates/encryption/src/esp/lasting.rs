//! State of an association that outlasts a configuration: its sequence numbers and its usage.
//!
//! A changed configuration builds new functions. If an association has the same index and key as in the previous
//! configuration, it continues with its sequence numbers and usage. If sequence numbers started again, the peer would
//! take the packets for replayed packets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use forebay_aead::Fingerprint;
use forebay_graph::{Setup, SetupError};

/// The states of the associations in use, by index and key. A state exists as long as an association holds it.
pub(crate) struct Lasting<T> {
    states: Mutex<HashMap<(u32, Fingerprint), Weak<T>>>,
}

impl<T: Send + Sync + 'static> Lasting<T> {
    /// Returns the states of this module that are called `name`, one name for each direction. Successive configurations
    /// share these states.
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
