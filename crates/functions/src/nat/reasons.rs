//! Why packets are dropped by a translation, in either direction or on the way out alone.

use forebay_graph::{Gate, Reason};

use crate::undecidable::HIDES_ADDRESSES;

/// The reasons for which [`nat_out`](crate::nat_out) drops.
pub(crate) const OUT_DROPS: &[Reason] = &[
    Reason { name: "no_session", help: "The packet is of no session that there is, and may not open one." },
    Reason {
        name: "fragment",
        help: "A fragment does not show its ports, or what follows does not: put `reassemble` before.",
    },
    Reason {
        name: "protocol",
        help: "The packet is of a protocol or ICMP type without ports to translate, or its header is cut short.",
    },
    Reason { name: "full", help: "There is no room for another session." },
    Reason { name: "busy", help: "Another worker has the table, which cannot be." },
    Reason { name: "undecidable", help: HIDES_ADDRESSES },
    Reason {
        name: "no_port",
        help: "All ports are given out that the session's outside address has, or that one inside address may have.",
    },
    Reason {
        name: "hairpin",
        help: "The packet goes from inside to an outside address of the pool, and the module has no such gate.",
    },
    Reason {
        name: "not_inside",
        help: "The source is none of the inside addresses whose ports are computed, and no ports are reserved for others.",
    },
];
/// Those for which [`nat_in`](crate::nat_in) does: no port is given out on the way in.
pub(crate) const IN_DROPS: &[Reason] = OUT_DROPS.split_at(6).0;

pub(super) const NO_SESSION: Gate = Gate::drop(0);
pub(super) const FRAGMENT: Gate = Gate::drop(1);
pub(super) const PROTOCOL: Gate = Gate::drop(2);
pub(super) const FULL: Gate = Gate::drop(3);
/// See [`OUT_DROPS`].
pub(crate) const BUSY: Gate = Gate::drop(4);
pub(super) const UNDECIDABLE: Gate = Gate::drop(5);
pub(super) const NO_PORT: Gate = Gate::drop(6);
/// See [`OUT_DROPS`].
pub(crate) const HAIRPIN: Gate = Gate::drop(7);
pub(super) const NOT_INSIDE: Gate = Gate::drop(8);
