//! Drop reasons of a translation: the first six for both directions, the others only for the way out.

use forebay_graph::{Gate, Reason};

use crate::undecidable::HIDES_ADDRESSES;

/// Drop reasons of [`nat_out`](crate::nat_out).
pub(crate) const OUT_DROPS: &[Reason] = &[
    Reason { name: "no_session", help: "The packet belongs to no session and may not open one." },
    Reason { name: "fragment", help: "The packet is a fragment, so its ports are not known: put `reassemble` before." },
    Reason {
        name: "protocol",
        help: "The protocol or ICMP type has no ports to translate, or the header is cut short.",
    },
    Reason { name: "full", help: "There is no room for another session." },
    Reason { name: "busy", help: "Another worker holds the table; this should never happen." },
    Reason { name: "undecidable", help: HIDES_ADDRESSES },
    Reason {
        name: "no_port",
        help: "All ports of the session's outside address are in use, or the inside address has reached its limit.",
    },
    Reason {
        name: "hairpin",
        help: "The packet goes from inside to an outside address of the pool, and the module has no gate `hairpin`.",
    },
    Reason {
        name: "not_inside",
        help: "The source is not an inside address with computed ports, and no ports are reserved for other addresses.",
    },
];
/// Drop reasons of [`nat_in`](crate::nat_in), which never allocates a port.
pub(crate) const IN_DROPS: &[Reason] = OUT_DROPS.split_at(6).0;

// The gates of the drop reasons. The numbers are the indices in `OUT_DROPS`.
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
