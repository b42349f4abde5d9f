//! The reasons why packets are dropped and created, and the counters.

use forebay_graph::{Gate, Reason};

pub(super) const UNRESOLVED: Gate = Gate::drop(0);
pub(super) const UNREACHABLE: Gate = Gate::drop(1);
pub(super) const QUEUE_FULL: Gate = Gate::drop(2);
pub(super) const HELD_FULL: Gate = Gate::drop(3);
pub(super) const RESOLVING_FULL: Gate = Gate::drop(4);
pub(super) const TABLE_FULL: Gate = Gate::drop(5);
pub(super) const TABLE_BUSY: Gate = Gate::drop(6);
pub(super) const NO_GATEWAY: Gate = Gate::drop(7);
pub(super) const NOT_FOR_LINK: Gate = Gate::drop(8);
pub(super) const NOT_IP: Gate = Gate::drop(9);
pub(super) const NOT_ASKED: Gate = Gate::drop(10);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
pub(super) const DROPS: &[Reason] = &[
    Reason { name: "unresolved", help: "The packet waited for its neighbour, which did not answer." },
    Reason { name: "unreachable", help: "The neighbour did not answer before, and no new request is sent yet." },
    Reason {
        name: "queue_full",
        help: "The limit of packets that wait for this neighbour is reached ('queue'): the oldest is dropped.",
    },
    Reason {
        name: "held_full",
        help: "The number of packets that wait for neighbours has reached the limit for all neighbours together \
               ('held').",
    },
    Reason {
        name: "resolving_full",
        help: "The list of neighbours for which packets wait is full (parameter 'resolving').",
    },
    Reason {
        name: "table_full",
        help: "There is no room for the neighbour: permanent neighbours use all slots for its address.",
    },
    Reason { name: "table_busy", help: "Another worker was interrupted while it wrote the neighbour's entry." },
    Reason {
        name: "no_gateway",
        help: "The destination is in none of the interface's prefixes, and there is no gateway.",
    },
    Reason {
        name: "not_for_link",
        help: "The destination is the interface's own address, or a broadcast address of its prefixes (RFC 2644).",
    },
    Reason { name: "not_ip", help: "The frame carries neither IPv4 nor IPv6, or is to an IPv4-mapped IPv6 address." },
    Reason {
        name: "not_asked",
        help: "The neighbour is unknown, and the limit of requests per second is reached (1000 for each worker).",
    },
];

/// Indexes in [`CREATES`].
pub(super) const ARP_REQUEST: usize = 0;
pub(super) const SOLICITATION: usize = 1;
pub(super) const ANNOUNCEMENT: usize = 2;
pub(super) const CREATES: &[Reason] = &[
    Reason { name: "arp_request", help: "Sent to find a neighbour's Ethernet address, or to confirm it." },
    Reason { name: "neighbour_solicitation", help: "The same over IPv6." },
    Reason { name: "announcement", help: "Sent to announce the interface's addresses." },
];

/// Indexes in [`COUNTERS`].
pub(super) const HELD_COUNT: usize = 0;
pub(super) const RESOLVED_COUNT: usize = 1;
pub(super) const FAILED_COUNT: usize = 2;
pub(super) const EVICTED_COUNT: usize = 3;
pub(super) const FORGOTTEN_COUNT: usize = 4;
pub(super) const COUNTERS: [&str; 5] = ["waited", "resolved", "failed", "evicted", "forgotten"];
