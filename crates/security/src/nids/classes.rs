//! The predefined classes of rules with their priorities and descriptions. Rule files expect these classes to exist.

use std::collections::BTreeMap;

/// Names and descriptions by priority. 1 is the most urgent.
const KNOWN: [(u8, &[(&str, &str)]); 4] = [
    (
        1,
        &[
            ("attempted-admin", "Attempt to gain administrator rights"),
            ("attempted-user", "Attempt to gain a user's rights"),
            ("inappropriate-content", "Unwanted content"),
            ("policy-violation", "Breach of a policy"),
            ("shellcode-detect", "Executable code in data"),
            ("successful-admin", "Administrator rights gained"),
            ("successful-user", "A user's rights gained"),
            ("trojan-activity", "Traffic of a trojan"),
            ("unsuccessful-user", "Failed attempt to gain a user's rights"),
            ("web-application-attack", "Attack on a web application"),
            ("client-side-exploit", "Attack on a client's software"),
            ("file-format", "File that attacks its reader"),
            ("malware-cnc", "Malware that talks to its controller"),
        ],
    ),
    (
        2,
        &[
            ("attempted-dos", "Attempt to deny a service"),
            ("attempted-recon", "Attempt to gather information"),
            ("bad-unknown", "Possibly harmful traffic"),
            ("default-login-attempt", "Login with a default name and password"),
            ("denial-of-service", "Denial of a service"),
            ("misc-attack", "Other attack"),
            ("non-standard-protocol", "Unusual protocol or event"),
            ("rpc-portmap-decode", "Query of RPC services"),
            ("successful-dos", "Service denied"),
            ("successful-recon-largescale", "Much information gathered"),
            ("successful-recon-limited", "Some information gathered"),
            ("suspicious-filename-detect", "Suspicious file name"),
            ("suspicious-login", "Login with a suspicious name"),
            ("system-call-detect", "System call in data"),
            ("unusual-client-port-connection", "Client with an unusual port"),
            ("web-application-activity", "Access to a web application that may be attacked"),
            ("sdf", "Sensitive data"),
        ],
    ),
    (
        3,
        &[
            ("icmp-event", "ICMP event"),
            ("misc-activity", "Other activity"),
            ("network-scan", "Scan of a network"),
            ("not-suspicious", "Not suspicious"),
            ("protocol-command-decode", "Command of a protocol"),
            ("string-detect", "Suspicious string"),
            ("unknown", "Unknown traffic"),
        ],
    ),
    (4, &[("tcp-connection", "TCP connection")]),
];

/// Returns the priorities by class.
pub fn known() -> BTreeMap<String, u8> {
    KNOWN.iter().flat_map(|(priority, names)| names.iter().map(|(name, _)| ((*name).to_owned(), *priority))).collect()
}

/// Returns the description of a class, or an empty text if it has none.
pub fn text(class: &str) -> &'static str {
    let mut all = KNOWN.iter().flat_map(|(_, names)| names.iter());
    all.find(|(name, _)| *name == class).map_or("", |(_, text)| text)
}
