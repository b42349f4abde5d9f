//! What may be compared over time: measurements of one subject, and counts of one kind of build.

use crate::cases::named;
use crate::measurement::Origin;
use crate::saved::Saved;

/// A pipeline as it was named, with its settings. What a file said may change: that is a change to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subject<'s> {
    pub(super) pipeline: &'s str,
    pub(super) set: &'s [String],
}

impl<'s> Subject<'s> {
    pub(super) fn of(saved: &'s Saved) -> Self {
        Self { pipeline: &saved.subject.pipeline, set: &saved.subject.set }
    }

    /// `name` with the settings, as messages tell it.
    pub(super) fn told(&self, name: &str) -> String {
        named(name, self.set)
    }
}

/// Figures that say something about each other: of one origin, and where they are counted of one kind of build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind<'s> {
    pub(super) origin: Origin,
    /// Of what builds, where the figures are counted.
    pub(super) build: Option<Build<'s>>,
}

impl<'s> Kind<'s> {
    pub(super) fn of(saved: &'s Saved, origin: Origin) -> Self {
        Self { origin, build: (origin == Origin::Emulated).then(|| Build::of(saved)) }
    }
}

/// Builds whose counts can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Build<'s> {
    /// The instruction set, where it is told.
    pub(super) set: Option<&'s str>,
    /// Whether it checks itself. Earlier versions do not tell; few save a measurement of such a build.
    pub(super) debug: bool,
}

impl<'s> Build<'s> {
    fn of(saved: &'s Saved) -> Self {
        let told = &saved.measurement;
        Self { set: told.instruction_set.as_deref(), debug: told.profile.as_deref() == Some("debug") }
    }

    /// The build that `saved` has counts of, if any.
    pub(super) fn counted(saved: &'s Saved) -> Option<Self> {
        let told = &saved.measurement;
        let of_module = told.modules.iter().any(|module| module.ipp.is_some() && module.source.ipp == Origin::Emulated);
        (of_module || told.chain.ipp.is_some()).then(|| Self::of(saved))
    }

    /// What tells it from others of `all`; nothing where it is the only one.
    pub(super) fn apart(&self, all: &[Self]) -> Option<String> {
        let mut parts = Vec::new();
        if all.iter().any(|other| other.set != self.set) {
            parts.push(self.set.unwrap_or("unknown instruction set"));
        }
        if all.iter().any(|other| other.debug != self.debug) {
            parts.push(if self.debug { "debug build" } else { "release build" });
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}
