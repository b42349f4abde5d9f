//! The figures that a history follows, and what a saved measurement says of them.

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
    /// Effective CPU utilisation; of the chain alone.
    Cur,
}

impl Figure {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ipp, Self::CppTicks, Self::PacketsPerCall, Self::Cur];

    /// What it is of.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Ipp => "instructions a packet",
            Self::CppTicks => "ticks a packet",
            Self::PacketsPerCall => "packets a call",
            Self::Cur => "share of the workers' time",
        }
    }

    /// As options and JSON name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipp => "ipp",
            Self::CppTicks => "cpp_ticks",
            Self::PacketsPerCall => "packets_per_call",
            Self::Cur => "cur",
        }
    }

    /// What `saved` has of a module, or of the chain, and where it comes from. Of a void measurement only what was counted is
    /// told.
    pub(super) fn of(self, saved: &Saved, module: &str) -> Option<(f64, Origin)> {
        let void = saved.measurement.chain.void;
        self.written(saved, module).filter(|(_, origin)| !void || *origin == Origin::Emulated)
    }

    /// The same as it was saved.
    fn written(self, saved: &Saved, module: &str) -> Option<(f64, Origin)> {
        let (modules, chain) = (&saved.measurement.modules, &saved.measurement.chain);
        if module == CHAIN {
            // The chain's come from where its modules' do.
            let counted = modules.iter().find(|module| module.ipp.is_some()).map(|module| module.source.ipp);
            return match self {
                Self::Ipp => Some((chain.ipp?, counted.unwrap_or(Origin::Emulated))),
                Self::CppTicks => Some((chain.cpp_ticks?, Origin::Measured)),
                Self::Cur => Some((chain.cur, Origin::Measured)),
                Self::PacketsPerCall => None,
            };
        }
        let module = modules.iter().find(|told| told.name == module)?;
        match self {
            Self::Ipp => Some((module.ipp?, module.source.ipp)),
            Self::CppTicks => Some((module.cpp_ticks?, module.source.cpp_ticks)),
            Self::PacketsPerCall => Some((module.packets_per_call?, module.source.packets_per_call)),
            Self::Cur => None,
        }
    }
}
