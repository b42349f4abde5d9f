//! The list of use cases, with their parameters.

use super::parameters::{Parameter, UseCase};
use super::{chains, encryption, forwarding, gateway, inspection, mobile, robot, router, tracking, vrf};

/// Returns a parameter. `default` is its default value as text, and `value` is the type of its values in words.
const fn parameter(name: &'static str, default: &'static str, value: &'static str, help: &'static str) -> Parameter {
    Parameter { name, help, default, value }
}

const NUMBER: &str = "whole number";
const PACKET_RATE: &str = "packet rate or max";
const SPAN: &str = "span of time";
const WORD: &str = "word";

const RATE: &str = "Total offered packet rate (`1Mpps`), or `max`: as many packets as the worker accepts.";
const SLO: &str = "Every flow's delay objective (`100us`); none by default.";
const BATCH: Parameter = parameter("batch", "32", NUMBER, "The largest batch, 1 to 256.");
const TRIGGER: Parameter =
    parameter("trigger", "0", NUMBER, "Trigger of each branch's first module, 0 to the largest batch.");
const HOLD: Parameter = parameter(
    "hold",
    "",
    SPAN,
    "Hold limit of each branch's first module (`300us`); derived from the delay objectives by default.",
);
const SESSIONS: Parameter = parameter(
    "sessions",
    "4096",
    NUMBER,
    "Least number of sessions, 1 to 1048576; rounded up so that branches get equal shares.",
);
const SIZE: Parameter = parameter("size", "60", NUMBER, "Frame length in bytes, 60 to 1514.");
const SEED: Parameter = parameter("seed", "1", NUMBER, "The seed of all random numbers.");

const N: Parameter = parameter("n", "16", NUMBER, "Next hops, 1 to 4096: each is a branch.");
const ROUTER: &[Parameter] = &[
    N,
    parameter("rate", "1Mpps", PACKET_RATE, RATE),
    parameter("slo", "", SPAN, SLO),
    BATCH,
    TRIGGER,
    HOLD,
    SESSIONS,
    SIZE,
    SEED,
];
const HOPS: Parameter = parameter("n", "1", NUMBER, "Next hops, 1 to 4096: each is a branch.");
const LONGER: Parameter = Parameter { default: "512", ..SIZE };
const PATTERNS: Parameter =
    parameter("patterns", "1000", NUMBER, "Search patterns, 1 to 10000, generated from the seed.");
const MATCHING: Parameter =
    parameter("matching", "5", NUMBER, "Percentage of packets that contain a search pattern, 0 to 100.");
const BACKEND: Parameter = parameter(
    "backend",
    "auto",
    WORD,
    "The encryption: `hardware` (the processor's instructions), `software`, or `auto`: hardware if available.",
);
const STAGES: Parameter = parameter(
    "stages",
    "1",
    NUMBER,
    "1: run to completion on one worker; 2: pipelined over two workers, each on its own core.",
);
pub(super) static ALL: &[UseCase] = &[
    UseCase {
        name: "l2l3",
        summary: "a router with 500 prefixes and n next hops; each next hop has a chain of three modules",
        parameters: ROUTER,
        write: router::write,
    },
    UseCase {
        name: "gw",
        summary: "a gateway: n next hops, each with firewall, NAT and the functions of a router",
        parameters: ROUTER,
        write: gateway::write,
    },
    UseCase {
        name: "vrf",
        summary: "m virtual routers, one for each VLAN; each has n next hops with firewall and NAT",
        parameters: &[
            parameter("m", "4", NUMBER, "Virtual routers, 1 to 1024; m times n is at most 4096."),
            parameter("n", "4", NUMBER, "Next hops of each virtual router; each next hop is a branch."),
            parameter("rate", "1Mpps", PACKET_RATE, RATE),
            parameter("slo", "", SPAN, SLO),
            BATCH,
            TRIGGER,
            HOLD,
            SESSIONS,
            SIZE,
            SEED,
        ],
        write: vrf::write,
    },
    UseCase {
        name: "mgw",
        summary: "the gateway of a mobile network: m users with n bearers each, in tunnels on one side",
        parameters: &[
            parameter("m", "4", NUMBER, "Users, 1 to 2048; m times n is at most 2048."),
            parameter("n", "4", NUMBER, "Bearers of each user; each bearer is one branch in each direction."),
            parameter("tunnel", "gtpu", WORD, "The kind of tunnels: gtpu or vxlan."),
            parameter("rate", "1Mpps", PACKET_RATE, RATE),
            parameter("slo", "", SPAN, SLO),
            BATCH,
            TRIGGER,
            HOLD,
            SESSIONS,
            parameter(
                "size",
                "60",
                NUMBER,
                "Frame length in bytes outside the tunnels, 60 to 1514; the tunnels add their headers.",
            ),
            SEED,
        ],
        write: mobile::write,
    },
    UseCase {
        name: "rc",
        summary: "robot control: one urgent branch without cost, and n - 1 branches of 10000 cycles per call",
        parameters: &[
            parameter("n", "16", NUMBER, "Branches, 2 to 4096."),
            parameter(
                "c",
                "0",
                NUMBER,
                "Cost of a packet on the branches that are not urgent, in cycles, 0 to 1000000.",
            ),
            parameter("rate", "100kpps", PACKET_RATE, RATE),
            parameter(
                "slo",
                "",
                SPAN,
                "The urgent flow's delay objective (`35us`); the other flows then have 100ms. None by default.",
            ),
            BATCH,
            TRIGGER,
            HOLD,
            SESSIONS,
            SIZE,
            SEED,
        ],
        write: robot::write,
    },
    UseCase {
        name: "sfc_a",
        summary: "a chain: NAT both ways, deep packet inspection, L3 forwarding",
        parameters: &[
            HOPS,
            STAGES,
            PATTERNS,
            MATCHING,
            parameter("rate", "1Mpps", PACKET_RATE, RATE),
            parameter("slo", "", SPAN, SLO),
            BATCH,
            TRIGGER,
            HOLD,
            SESSIONS,
            SIZE,
            SEED,
        ],
        write: chains::write_a,
    },
    UseCase {
        name: "sfc_b",
        summary: "a chain: access control, L4 load balancer, L3 forwarding",
        parameters: &[
            HOPS,
            STAGES,
            parameter("servers", "4", NUMBER, "Servers over which sessions are distributed, 1 to 256."),
            parameter("rate", "1Mpps", PACKET_RATE, RATE),
            parameter("slo", "", SPAN, SLO),
            BATCH,
            TRIGGER,
            HOLD,
            SESSIONS,
            SIZE,
            SEED,
        ],
        write: chains::write_b,
    },
    UseCase {
        name: "forward",
        summary: "only forwarding: looks up the destination among n next hops, and sets the next hop's address",
        parameters: &[
            HOPS,
            parameter("rate", "1Mpps", PACKET_RATE, RATE),
            parameter("slo", "", SPAN, SLO),
            BATCH,
            TRIGGER,
            HOLD,
            SESSIONS,
            SIZE,
            SEED,
        ],
        write: forwarding::write_forward,
    },
    UseCase {
        name: "router",
        summary: "an IPv4 router: checks headers, looks up routes, decrements the time to live",
        parameters: &[
            HOPS,
            parameter("routes", "1000", NUMBER, "Number of /24 routes, n to 65536."),
            parameter("rate", "1Mpps", PACKET_RATE, RATE),
            parameter("slo", "", SPAN, SLO),
            BATCH,
            TRIGGER,
            HOLD,
            SESSIONS,
            SIZE,
            SEED,
        ],
        write: forwarding::write_router,
    },
    UseCase {
        name: "firewall",
        summary: "a firewall that tracks connections, both ways: outgoing packets open them, replies pass",
        parameters: &[
            HOPS,
            parameter("rules", "100", NUMBER, "Rules for packets that may open a connection, 1 to 100000."),
            parameter("rate", "1Mpps", PACKET_RATE, RATE),
            parameter("slo", "", SPAN, SLO),
            BATCH,
            TRIGGER,
            HOLD,
            SESSIONS,
            SIZE,
            SEED,
        ],
        write: tracking::write_firewall,
    },
    UseCase {
        name: "nids",
        summary: "intrusion detection by rules in Snort's syntax, then forwarding",
        parameters: &[
            HOPS,
            parameter("rules", "1000", NUMBER, "Rules, 2 to 10000, half of them for the packets' port."),
            MATCHING,
            parameter("rate", "200kpps", PACKET_RATE, RATE),
            parameter("slo", "", SPAN, SLO),
            BATCH,
            TRIGGER,
            HOLD,
            SESSIONS,
            LONGER,
            SEED,
        ],
        write: inspection::write_nids,
    },
    UseCase {
        name: "dpi",
        summary: "deep packet inspection: payloads with a pattern take another path than those without",
        parameters: &[
            HOPS,
            PATTERNS,
            MATCHING,
            parameter("rate", "200kpps", PACKET_RATE, RATE),
            parameter("slo", "", SPAN, SLO),
            BATCH,
            TRIGGER,
            HOLD,
            SESSIONS,
            LONGER,
            SEED,
        ],
        write: inspection::write_dpi,
    },
    UseCase {
        name: "vpn",
        summary: "both ends of an ESP tunnel (AES-128-GCM): encryption, decryption, then forwarding",
        parameters: &[
            HOPS,
            STAGES,
            BACKEND,
            parameter("rate", "200kpps", PACKET_RATE, RATE),
            parameter("slo", "", SPAN, SLO),
            BATCH,
            TRIGGER,
            HOLD,
            SESSIONS,
            LONGER,
            SEED,
        ],
        write: encryption::write_vpn,
    },
    UseCase {
        name: "aes",
        summary: "encryption of UDP payloads (AES-128-GCM), then forwarding",
        parameters: &[
            HOPS,
            BACKEND,
            parameter("ends", "1", NUMBER, "1: packets are encrypted; 2: packets are encrypted and decrypted."),
            parameter("rate", "200kpps", PACKET_RATE, RATE),
            parameter("slo", "", SPAN, SLO),
            BATCH,
            TRIGGER,
            HOLD,
            SESSIONS,
            LONGER,
            SEED,
        ],
        write: encryption::write_aes,
    },
];
