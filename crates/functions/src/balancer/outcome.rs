//! Where packets go that are not sent on: the reasons for drops, and what is of no service; and what is counted.

use forebay_graph::{Gate, Reason, Setup, SetupError};
use forebay_packet::Word;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::undecidable::HIDES_ADDRESSES;

/// The reasons for which [`balance`](crate::balance) drops.
pub(crate) const DROPS: &[Reason] = &[
    Reason {
        name: "no_service",
        help: "The packet is for no service, or from no session, and such are to be dropped.",
    },
    Reason {
        name: "fragment",
        help: "A fragment does not show its ports, or what follows does not: put `reassemble` before.",
    },
    Reason {
        name: "malformed",
        help: "The transport's header is cut short, or an ICMP error does not quote the ports of a packet.",
    },
    Reason { name: "busy", help: "Another worker has the sessions, which cannot be." },
    Reason { name: "undecidable", help: HIDES_ADDRESSES },
    Reason { name: "no_backend", help: "No backend of the service takes new sessions." },
    Reason {
        name: "clash",
        help: "Replies could not be told from those of another session, which the client has by the same port.",
    },
    Reason { name: "full", help: "There is no room for another session." },
];
/// Those for which [`balance_back`](crate::balance_back) does: nothing is opened on the way back.
pub(crate) const BACK_DROPS: &[Reason] = DROPS.split_at(5).0;

pub(super) const NO_SERVICE: Gate = Gate::drop(0);
pub(super) const FRAGMENT: Gate = Gate::drop(1);
pub(super) const MALFORMED: Gate = Gate::drop(2);
pub(crate) const BUSY: Gate = Gate::drop(3);
pub(super) const UNDECIDABLE: Gate = Gate::drop(4);
pub(super) const NO_BACKEND: Gate = Gate::drop(5);
pub(super) const CLASH: Gate = Gate::drop(6);
pub(super) const FULL: Gate = Gate::drop(7);

/// What is counted of sessions, in this order.
pub(crate) const COUNTERS: [&str; 5] = ["open", "opened", "ended", "evicted", "refused"];
/// What is counted of each backend: the headings.
pub(crate) const BACKENDS: [&str; 3] = ["open sessions by backend", "opened sessions by backend", "packets by backend"];

/// What happens to packets that are of no service or session.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Others {
    /// They pass as they are.
    #[default]
    Pass,
    /// They are dropped.
    Drop,
    /// They leave by a gate of their own.
    Gate,
}

impl Others {
    /// Where they go; names the gates.
    pub(crate) fn gate(self, setup: &mut Setup<'_>) -> Result<Gate, SetupError> {
        match self {
            Self::Pass => Ok(Gate::FIRST),
            Self::Drop => Ok(NO_SERVICE),
            Self::Gate => setup.gates(["0", "others"]).map(|()| Gate::out(1)),
        }
    }
}

/// Where packets of no service or session go, and where next hops are written.
#[derive(Clone, Copy)]
pub(crate) struct Ways {
    pub(crate) others: Gate,
    pub(crate) word: Option<Word>,
}
