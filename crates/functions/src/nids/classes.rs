//! Classes of rules and their priorities, as rule files expect them to be known.

use std::collections::BTreeMap;

/// Names by priority: 1 is the most urgent.
const KNOWN: [(u8, &[&str]); 4] = [
    (
        1,
        &[
            "attempted-admin",
            "attempted-user",
            "inappropriate-content",
            "policy-violation",
            "shellcode-detect",
            "successful-admin",
            "successful-user",
            "trojan-activity",
            "unsuccessful-user",
            "web-application-attack",
            "client-side-exploit",
            "file-format",
            "malware-cnc",
        ],
    ),
    (
        2,
        &[
            "attempted-dos",
            "attempted-recon",
            "bad-unknown",
            "default-login-attempt",
            "denial-of-service",
            "misc-attack",
            "non-standard-protocol",
            "rpc-portmap-decode",
            "successful-dos",
            "successful-recon-largescale",
            "successful-recon-limited",
            "suspicious-filename-detect",
            "suspicious-login",
            "system-call-detect",
            "unusual-client-port-connection",
            "web-application-activity",
            "sdf",
        ],
    ),
    (
        3,
        &[
            "icmp-event",
            "misc-activity",
            "network-scan",
            "not-suspicious",
            "protocol-command-decode",
            "string-detect",
            "unknown",
        ],
    ),
    (4, &["tcp-connection"]),
];

/// Priorities by class.
pub fn known() -> BTreeMap<String, u8> {
    KNOWN.iter().flat_map(|(priority, names)| names.iter().map(|name| ((*name).to_owned(), *priority))).collect()
}
