//! The names of events and their levels (`docs/events.md`).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The level of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Something fails, and packets are lost.
    Error,
    /// Something needs attention.
    Warn,
    /// An expected change.
    Info,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
        })
    }
}

macro_rules! names {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal, $level:ident;)*) => {
        /// The name of an event. It stays the same in later versions, because programs look for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        pub enum EventName {
            $($(#[doc = $doc])* #[serde(rename = $name)] $variant,)*
        }

        impl EventName {
            /// All names.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the name as text.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Returns the level.
            #[must_use]
            pub const fn level(self) -> Level {
                match self { $(Self::$variant => Level::$level),* }
            }
        }
    };
}

names! {
    /// The workers run.
    Started = "started", Info;
    /// The socket is open.
    Listening = "listening", Info;
    /// The server of `--http` accepts connections.
    HttpStarted = "http_started", Info;
    /// The server of `--http` has ended before the run.
    HttpEnded = "http_ended", Warn;
    /// The run is simulated and no duration is set, so it has the default duration.
    DurationSet = "duration_set", Info;
    /// The run starts from the configuration that was accepted last.
    StateUsed = "state_used", Info;
    /// The run starts from its file, in place of the configuration that was accepted last.
    StateReplaced = "state_replaced", Warn;
    /// A module does not use some rules of its file.
    RulesSkipped = "rules_skipped", Warn;
    /// Rules of a table match no packet, because an earlier rule matches all of their packets.
    RulesHidden = "rules_hidden", Warn;
    /// The host's own stack answers ARP for addresses of the pipeline.
    ArpFlux = "arp_flux", Warn;
    /// The controller begins without a profile of some functions. It learns the costs of their calls during the run.
    CostsLearnt = "costs_learnt", Info;
    /// A port's interface went down, or lost its carrier.
    LinkDown = "link_down", Warn;
    /// A port's interface is up and has a carrier again.
    LinkUp = "link_up", Info;
    /// A port's interface is gone.
    PortLost = "port_lost", Error;
    /// A port's interface is there again, and the port uses it.
    PortRemade = "port_remade", Info;
    /// Another configuration is in force.
    ReloadAccepted = "reload_accepted", Info;
    /// A configuration was refused; the old one stays.
    ReloadRefused = "reload_refused", Warn;
    /// Modules have moved to other workers, because a client requested it.
    Moved = "moved", Info;
    /// Entries of a table were changed.
    TableChanged = "table_changed", Info;
    /// Another station uses an address of an interface.
    AddressConflict = "address_conflict", Warn;
    /// An interface has more neighbours, or more requests from neighbours, than it can serve.
    NeighbourFlood = "neighbour_flood", Warn;
    /// A flow misses its objective.
    ObjectiveMissed = "objective_missed", Warn;
    /// A flow keeps its objective again.
    ObjectiveKept = "objective_kept", Info;
    /// The packet pool was empty when a packet was needed.
    PoolLow = "pool_low", Warn;
    /// Lines are missing in a file of a module.
    LogLost = "log_lost", Warn;
    /// A frame is longer than a packet of the pool, or a block of a ring, can hold.
    Oversize = "oversize", Warn;
    /// Logs will be opened again.
    LogsReopened = "logs_reopened", Info;
    /// A log could not be opened again.
    LogNotReopened = "log_not_reopened", Warn;
    /// The terminal of the run is gone.
    TerminalLost = "terminal_lost", Info;
    /// The sources are used up, and modules hold packets.
    Waiting = "waiting", Info;
    /// The run ended before a source did.
    PortUnread = "port_unread", Warn;
    /// A trace was requested, and the run ended without a traced packet.
    NothingTraced = "nothing_traced", Warn;
    /// The file of dropped packets is complete.
    DropsWritten = "drops_written", Info;
    /// The run ends with an error.
    RunFailed = "run_failed", Error;
}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_serde_writes_them() {
        for name in EventName::ALL {
            assert_eq!(serde_json::to_value(name).expect("a name"), name.as_str());
        }
    }
}
