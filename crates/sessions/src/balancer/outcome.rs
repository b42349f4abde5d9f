//! Drop reasons, counters, and the gates of packets that are not sent to a backend.

use forebay_graph::{Gate, Reason, Setup, SetupError};
use forebay_packet::{Packet, Word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::services::Hop;
use crate::undecidable::HIDES_ADDRESSES;

/// Drop reasons of [`balance`](crate::balance).
pub(crate) const DROPS: &[Reason] = &[
    Reason {
        name: "no_service",
        help: "The packet is not for a service, or is not a backend's reply, and `others` is `drop`.",
    },
    Reason { name: "fragment", help: "The packet is a fragment, so its ports are not known: put `reassemble` before." },
    Reason {
        name: "malformed",
        help: "The transport header is cut short, or an ICMP error does not quote the ports of a packet.",
    },
    Reason { name: "busy", help: "Another worker holds the sessions; this should never happen." },
    Reason { name: "undecidable", help: HIDES_ADDRESSES },
    Reason { name: "no_backend", help: "No backend of the service takes new sessions." },
    Reason {
        name: "clash",
        help: "The client has another session with the same port, and replies could belong to either.",
    },
    Reason { name: "full", help: "There is no room for another session." },
];
/// Drop reasons of [`balance_back`](crate::balance_back), which opens no sessions: the first five of [`DROPS`].
pub(crate) const BACK_DROPS: &[Reason] = DROPS.split_at(5).0;

// The gates of the drop reasons. The numbers are the indices in `DROPS`.
pub(super) const NO_SERVICE: Gate = Gate::drop(0);
pub(super) const FRAGMENT: Gate = Gate::drop(1);
pub(super) const MALFORMED: Gate = Gate::drop(2);
pub(crate) const BUSY: Gate = Gate::drop(3);
pub(super) const UNDECIDABLE: Gate = Gate::drop(4);
pub(super) const NO_BACKEND: Gate = Gate::drop(5);
pub(super) const CLASH: Gate = Gate::drop(6);
pub(super) const FULL: Gate = Gate::drop(7);

/// The names of the counters of sessions, in the order of their indices.
pub(crate) const COUNTERS: [&str; 5] = ["open", "opened", "ended", "evicted", "refused"];
/// Headings of the counters of each backend.
pub(crate) const BACKENDS: [&str; 3] = ["open sessions by backend", "opened sessions by backend", "packets by backend"];

/// Action for packets that are not for a service, or are not a backend's reply.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Others {
    /// Lets them pass unchanged.
    #[default]
    Pass,
    /// Drops them.
    Drop,
    /// Sends them out through a gate named `others`.
    Gate,
}

impl Others {
    /// Returns the gate of packets that are not for a service, or are not a reply. For `gate`, also declares the gates
    /// of the module.
    pub(crate) fn gate(self, setup: &mut Setup<'_>) -> Result<Gate, SetupError> {
        match self {
            Self::Pass => Ok(Gate::FIRST),
            Self::Drop => Ok(NO_SERVICE),
            Self::Gate => setup.gates(["0", "others"]).map(|()| Gate::out(1)),
        }
    }
}

/// The gate of other packets, and the metadata word for next hops.
#[derive(Clone, Copy)]
pub(crate) struct Outputs {
    /// The gate of packets that are not for a service, or are not a reply.
    pub(crate) others: Gate,
    /// The metadata word `next_hop`, if a backend needs it.
    pub(crate) word: Option<Word>,
}

impl Outputs {
    /// Sends a packet to its backend without a change of the IP packet: sets the destination Ethernet address or the
    /// metadata word.
    #[inline(always)]
    pub(super) fn direct(self, packet: &mut Packet, hop: Hop) {
        match (hop, self.word) {
            (Hop::Mac(mac), _) => {
                if let Some(destination) = packet.data_mut().first_chunk_mut::<6>() {
                    *destination = mac;
                }
            }
            (Hop::Word(number), Some(word)) => packet.set_word(word, number),
            _ => {}
        }
    }
}
