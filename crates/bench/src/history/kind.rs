//! Defines which values can be compared over time: values of one subject. Counts must also be of one build
//! configuration.

use crate::cases::named;
use crate::measurement::Origin;
use crate::saved::Saved;

/// A pipeline as it was named, with its settings. If the contents of its file change, the series continues and shows
/// the effect of the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subject<'s> {
    pub(super) pipeline: &'s str,
    pub(super) set: &'s [String],
}

impl<'s> Subject<'s> {
    pub(super) fn of(saved: &'s Saved) -> Self {
        Self { pipeline: &saved.subject.pipeline, set: &saved.subject.set }
    }

    /// Returns `name` with the settings, for messages.
    pub(super) fn with_settings(&self, name: &str) -> String {
        named(name, self.set)
    }
}

/// A group of values that can be compared: they have the same origin, and counts have the same build configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueGroup<'s> {
    pub(super) origin: Origin,
    /// The build configuration, if the values are counts.
    pub(super) build: Option<Build<'s>>,
}

impl<'s> ValueGroup<'s> {
    pub(super) fn of(saved: &'s Saved, origin: Origin) -> Self {
        Self { origin, build: (origin == Origin::Emulated).then(|| Build::of(saved)) }
    }
}

/// A build configuration. Counts of builds with the same configuration can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Build<'s> {
    /// The instruction set, if known.
    pub(super) set: Option<&'s str>,
    /// True for a build with internal checks. False also if the saved measurement has no build profile (an earlier
    /// version): measurements of builds with checks are rarely saved.
    pub(super) debug: bool,
}

impl<'s> Build<'s> {
    fn of(saved: &'s Saved) -> Self {
        let measurement = &saved.measurement;
        Self { set: measurement.instruction_set.as_deref(), debug: measurement.profile.as_deref() == Some("debug") }
    }

    /// Returns the build configuration of the counts in `saved`. `None` if there are no counts.
    pub(super) fn counted(saved: &'s Saved) -> Option<Self> {
        let measurement = &saved.measurement;
        let of_module =
            measurement.modules.iter().any(|module| module.ipp.is_some() && module.source.ipp == Origin::Emulated);
        (of_module || measurement.chain.ipp.is_some()).then(|| Self::of(saved))
    }

    /// Returns the properties of this build in which other builds of `all` differ, for names of series. `None` if no
    /// build differs.
    pub(super) fn difference(&self, all: &[Self]) -> Option<String> {
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
