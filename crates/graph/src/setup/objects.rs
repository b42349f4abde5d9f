//! Creates the objects that modules share, and finds those that exist.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_units::text::short;

use super::shared_objects::{HandedOver, ObjectKey, SharedState};
use super::state::{DeclareState, states};
use super::{Setup, SetupError};
use crate::names::nearest;
use crate::own::Own;
use crate::own_counters::OwnCounters;

/// The number of errors that name the known states. It is limited, because a hostile text could name millions of
/// unknown states.
const MOST_LISTS: u32 = 100;

/// An object that the replicas of a module share, and its gauges.
struct ModuleObject<T> {
    object: Arc<T>,
    gauges: Vec<OwnCounters>,
}

impl Setup<'_> {
    /// Returns the type of the state called `name`, if the state exists.
    #[must_use]
    pub fn state_type(&self, name: &str) -> Option<&'static str> {
        let state = self.environment.objects.states.get(name)?;
        states().into_iter().find(|declaration| (declaration.is)(state)).map(|declaration| declaration.name)
    }

    /// Returns the shared state called `name`, which must be a `T`.
    ///
    /// # Errors
    /// [`wrong_state`](Self::wrong_state), if the state does not exist or has another type. `path` is the parameter
    /// that names it.
    pub fn state<T: DeclareState>(&self, path: &str, name: &str) -> Result<Arc<T>, SetupError> {
        let objects = &self.environment.objects;
        let Some(state) = objects.states.get(name) else { return Err(self.wrong_state(path, name, &[T::NAME])) };
        objects.requested_states.borrow_mut().insert(name.to_owned());
        *self.requested_state.borrow_mut() = Some(name.to_owned());
        Arc::clone(state).downcast::<T>().map_err(|_| self.wrong_state(path, name, &[T::NAME]))
    }

    /// Returns the error of the parameter at `path`, which names a state that does not exist or has none of the allowed
    /// `types`. The error has no faults if the state is defined but could not be created, because that fault is already
    /// reported.
    #[must_use]
    pub fn wrong_state(&self, path: &str, name: &str, types: &[&str]) -> SetupError {
        let objects = &self.environment.objects;
        if objects.broken_states.contains(name) {
            return SetupError::default();
        }
        if let Some(state) = objects.states.get(name) {
            let declaration = states().into_iter().find(|declaration| (declaration.is)(state));
            let of = declaration.map_or_else(|| "of another type".to_owned(), |it| with_article(it.name));
            let wrong = format!("the state '{name}' is {of}");
            let types: Vec<_> = types.iter().map(|kind| with_article(kind)).collect();
            return SetupError::wrong_name(path, name, wrong, types.iter().map(String::as_str));
        }
        let wrong = format!("no state is called '{}'", short(name));
        let before = objects.unknown_states.get();
        objects.unknown_states.set(before.saturating_add(1));
        if before >= MOST_LISTS {
            return SetupError::with_hint(path, wrong, "name a state that is defined under `state`");
        }
        let allowed: Vec<_> = states().into_iter().filter(|declaration| types.contains(&declaration.name)).collect();
        let fitting = objects.states.iter().filter(|(_, state)| allowed.iter().any(|it| (it.is)(state)));
        // A state that could not be created may have one of these types.
        let known: BTreeSet<_> =
            fitting.map(|(name, _)| name).chain(&objects.broken_states).map(String::as_str).collect();
        let wrong = format!("{wrong}{}", nearest(name, known.iter().copied()));
        if known.is_empty() {
            let types: Vec<_> = types.iter().map(|kind| with_article(kind)).collect();
            return SetupError::with_hint(path, wrong, format!("define {} under `state`", types.join(" or ")));
        }
        SetupError::wrong_name(path, name, wrong, known)
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
        self.shared(ObjectKey::Configuration(key.to_owned()), make)
    }

    /// Creates an object with `make`, once for all replicas of this module that request the same `key`. So a table that
    /// the control plane changes exists once, whatever the number of workers. Gauges that `make` creates belong to the
    /// object. Every replica that finds the object reports these gauges, even if the replica that created the object
    /// was only checked or has been removed.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn once_per_module<T: Any + Send + Sync>(
        &mut self,
        key: &str,
        make: impl FnOnce(&mut Self) -> Result<T, SetupError>,
    ) -> Result<Arc<T>, SetupError> {
        let before = self.declared.counters.len();
        let key = ObjectKey::Module { module: self.name.to_owned(), key: key.to_owned() };
        let made = self.shared(key, |setup| {
            let object = Arc::new(make(setup)?);
            Ok(ModuleObject { object, gauges: setup.declared.counters.split_off(before) })
        })?;
        self.declared.counters.extend(made.gauges.iter().cloned());
        Ok(Arc::clone(&made.object))
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
        self.shared(ObjectKey::Run(key.to_owned()), make)
    }

    /// Creates an object with `make` that consecutive configurations hand over under the same `key`. Each configuration
    /// finds the object as the previous one left it. A configuration that does not request the object drops it. The key
    /// must describe the content: an object made from other parameters needs another key.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn handed_over<T: Any + Send + Sync>(
        &mut self,
        key: &str,
        make: impl FnOnce(&mut Self) -> Result<T, SetupError>,
    ) -> Result<Arc<T>, SetupError> {
        self.hand_over(HandedOver { key: key.to_owned(), shares: None }, 0, make)
    }

    /// Creates an object that is [handed over](Self::handed_over), once for each worker that requests the same `key`.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn once_per_worker<T: Any + Send>(
        &mut self,
        key: &str,
        make: impl FnOnce(&mut Self) -> Result<T, SetupError>,
    ) -> Result<Arc<Own<T>>, SetupError> {
        let (share, of) = self.share();
        let object = HandedOver { key: key.to_owned(), shares: Some(of) };
        self.hand_over(object, share, |setup| make(setup).map(Own::new))
    }

    /// Creates or finds an object that configurations hand over, and records its owner. This is the shared state that
    /// was requested last, or this module if no state was requested. A reload reports the owners of the objects that it
    /// drops.
    fn hand_over<T: Any + Send + Sync>(
        &mut self,
        object: HandedOver,
        share: usize,
        make: impl FnOnce(&mut Self) -> Result<T, SetupError>,
    ) -> Result<Arc<T>, SetupError> {
        let owner = self.requested_state.borrow().clone().unwrap_or_else(|| self.name.to_owned());
        self.environment.objects.handed_over.insert(object.clone(), owner);
        self.shared(ObjectKey::HandedOver { object, share }, make)
    }

    /// Returns the object with this key, or creates it with `make` if there is none of type `T`.
    fn shared<T: Any + Send + Sync>(
        &mut self,
        key: ObjectKey,
        make: impl FnOnce(&mut Self) -> Result<T, SetupError>,
    ) -> Result<Arc<T>, SetupError> {
        let known = self.environment.objects.shared.get(&key).cloned();
        if let Some(known) = known.and_then(|known| known.downcast().ok()) {
            return Ok(known);
        }
        let object = Arc::new(make(self)?);
        self.environment.objects.shared.insert(key, Arc::clone(&object) as SharedState);
        Ok(object)
    }
}

/// Returns the name of a type in quotes, after its article.
fn with_article(name: &str) -> String {
    format!("{} '{name}'", if name.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" })
}

#[cfg(test)]
mod tests {
    use forebay_units::Frequency;

    use super::*;
    use crate::setup::SetupEnvironment;

    #[test]
    fn only_the_first_errors_name_the_known_states() {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        environment.objects.broken_states.insert("lan".to_owned());
        let setup = Setup::new("m", &mut environment);
        let error = || setup.wrong_state("state", "lna", &[]).to_string();
        for _ in 0..MOST_LISTS {
            assert_eq!(error(), "state: no state is called 'lna' (did you mean 'lan'?): allowed is lan");
        }
        assert_eq!(error(), "state: no state is called 'lna': name a state that is defined under `state`");
        assert!(setup.wrong_state("state", "lan", &[]).faults.is_empty(), "the fault of 'lan' is already reported");
    }

    #[test]
    fn types_are_named_if_no_state_is_suitable() {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        let error = Setup::new("m", &mut environment).wrong_state("state", "x", &["interface", "nat"]).to_string();
        assert_eq!(error, "state: no state is called 'x': define an 'interface' or a 'nat' under `state`");
    }
}
