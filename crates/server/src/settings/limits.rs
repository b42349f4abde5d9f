//! The limits of clients. They bound the memory and the processor time that clients can cost.

use forebay_protocol::check::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The limits of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The largest number of open connections. A further connection closes the one that has been silent longest.
    #[schemars(range(min = 8, max = 65_536))]
    pub connections: usize,
    /// The largest number of viewers: clients that receive events.
    #[schemars(range(min = 1, max = 4_096))]
    pub viewers: usize,
    /// The requests per second that one client may send on average. A client is an address, or a user of this host.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub requests_per_second: u32,
    /// The largest body of a request, in bytes.
    #[schemars(range(min = 1_024, max = 1_048_576))]
    pub body_bytes: usize,
    /// The time in which a request must be complete, and in which a client must read a part of its response, in
    /// seconds.
    #[schemars(range(min = 1, max = 600))]
    pub patience_s: u32,
    /// The largest size of the store, in megabytes. The oldest history is removed first; the audit log is never
    /// removed.
    #[schemars(range(min = 10, max = 100_000))]
    pub store_mb: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            viewers: 64,
            requests_per_second: 100,
            body_bytes: 1 << 20,
            patience_s: 30,
            store_mb: 200,
        }
    }
}

impl Limits {
    /// Returns the faults of limits that contradict each other.
    pub(super) fn faults(value: &Value) -> Vec<Fault> {
        let default = Self::default();
        let of = |key: &str, default: usize| value[key].as_u64().map_or(default as u64, |value| value);
        let (viewers, connections) = (of("viewers", default.viewers), of("connections", default.connections));
        if viewers < connections {
            return Vec::new();
        }
        let wrong = format!("{viewers} viewers need more than {connections} connections");
        let fault = Fault::wrong(viewers, wrong, format!("1 to {}", connections.saturating_sub(1)));
        vec![Fault { path: "limits.viewers".to_owned(), ..fault }]
    }
}
