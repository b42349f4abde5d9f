//! The figures of a history, and their values in a saved measurement.
//!
//! A new figure needs a variant here, an entry in [`Figure::ALL`], and arms in the four `match`es of this file. The
//! compiler reports missing arms, but not a missing entry. Options, tables and pages take everything else from here. A
//! name that is in use must not change: users write it in options, and scripts read it in JSON.

use serde::Serialize;

use super::CHAIN;
use crate::measurement::Origin;
use crate::saved::Saved;

/// A figure that a history follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Instructions per packet.
    Ipp,
    /// Ticks per packet.
    CppTicks,
    /// Packets per call.
    PacketsPerCall,
    /// Effective CPU utilisation; only of the whole chain.
    Cur,
}

impl Figure {
    /// All figures, in the order of the tables.
    pub const ALL: [Self; 4] = [Self::Ipp, Self::CppTicks, Self::PacketsPerCall, Self::Cur];

    /// Returns the unit of the figure.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Ipp => "instructions a packet",
            Self::CppTicks => "ticks a packet",
            Self::PacketsPerCall => "packets a call",
            Self::Cur => "share of the workers' time",
        }
    }

    /// Returns the name in options and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipp => "ipp",
            Self::CppTicks => "cpp_ticks",
            Self::PacketsPerCall => "packets_per_call",
            Self::Cur => "cur",
        }
    }

    /// Returns the value for a module or the chain in a saved measurement, with its origin. Of a void measurement, only
    /// counted values are returned.
    pub(super) fn of(self, saved: &Saved, module: &str) -> Option<(f64, Origin)> {
        let void = saved.measurement.chain.void;
        self.written(saved, module).filter(|(_, origin)| !void || *origin == Origin::Emulated)
    }

    /// Returns the value as it was saved, with its origin, also for a void measurement. `None` if the measurement does
    /// not have the module or the figure.
    fn written(self, saved: &Saved, module: &str) -> Option<(f64, Origin)> {
        let (modules, chain) = (&saved.measurement.modules, &saved.measurement.chain);
        if module == CHAIN {
            // The chain's counts have the same origin as its modules' counts.
            let counted = modules.iter().find(|module| module.ipp.is_some()).map(|module| module.source.ipp);
            return match self {
                Self::Ipp => Some((chain.ipp?, counted.unwrap_or(Origin::Emulated))),
                Self::CppTicks => Some((chain.cpp_ticks?, Origin::Measured)),
                Self::Cur => Some((chain.cur, Origin::Measured)),
                Self::PacketsPerCall => None,
            };
        }
        let module = modules.iter().find(|candidate| candidate.name == module)?;
        match self {
            Self::Ipp => Some((module.ipp?, module.source.ipp)),
            Self::CppTicks => Some((module.cpp_ticks?, module.source.cpp_ticks)),
            Self::PacketsPerCall => Some((module.packets_per_call?, module.source.packets_per_call)),
            Self::Cur => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_json_is_the_name_in_options() {
        for figure in Figure::ALL {
            assert_eq!(serde_json::to_value(figure).expect("a value"), figure.name());
        }
    }
}
