//! Creates the objects that modules share, and finds those that exist.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::shared_objects::{HandedOver, ObjectKey, SharedState};
use super::state::{DeclareState, states};
use super::{Setup, SetupError};
use crate::nearest::nearest;
use crate::own::Own;
use crate::own_counters::OwnCounters;

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
    /// The state does not exist or has another type. `path` is the parameter that names it. The error has no faults if
    /// the state is defined but could not be created, because that fault is already reported.
    pub fn state<T: DeclareState>(&self, path: &str, name: &str) -> Result<Arc<T>, SetupError> {
        let objects = &self.environment.objects;
        let Some(state) = objects.states.get(name) else {
            if objects.broken_states.contains(name) {
                return Err(SetupError::default());
            }
            // A state that could not be created may have this type.
            let fitting = objects.states.iter().filter(|(_, state)| state.is::<T>()).map(|(name, _)| name);
            let known: BTreeSet<_> = fitting.chain(&objects.broken_states).map(String::as_str).collect();
            let wrong = format!("no state is called '{name}'{}", nearest(name, known.iter().copied()));
            if known.is_empty() {
                return Err(SetupError::with_hint(path, wrong, format!("define a '{}' under `state`", T::NAME)));
            }
            let known: Vec<_> = known.into_iter().collect();
            return Err(SetupError::wrong(path, name, wrong, known.join(", ")));
        };
        objects.requested_states.borrow_mut().insert(name.to_owned());
        *self.requested_state.borrow_mut() = Some(name.to_owned());
        Arc::clone(state).downcast::<T>().map_err(|state| {
            let declaration = states().into_iter().find(|declaration| (declaration.is)(&state));
            let of = declaration.map_or_else(|| "of another type".to_owned(), |it| format!("a '{}'", it.name));
            SetupError::wrong_single(path, name, format!("the state '{name}' is {of}"), format!("a '{}'", T::NAME))
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
