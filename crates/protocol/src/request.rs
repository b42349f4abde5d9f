//! Requests to a running pipeline: one line of JSON each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::change::WantedWorkers;

/// A request. The field `do` has its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Begins a connection: it must be the first request. The response describes the instance.
    Hello {
        /// The protocol version that the client speaks: [`VERSION`](crate::VERSION).
        #[serde(default)]
        protocol: Option<u32>,
    },
    /// Requests the configuration in force, without secrets.
    Config {},
    /// Requests the report of the whole run.
    Report {
        /// Whether the response has a second report, about the time since the last `report` request of this connection.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        recent: bool,
        /// The modules whose counters per rule or table entry are wanted; `*` stands for all modules.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rules: Vec<String>,
        /// Whether the flows in the response have the distributions of their delays.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        histograms: bool,
    },
    /// Watches the counters. The first response is a full report, as for `report`, and so is the first response after
    /// each change of the configuration. Each other response has only the changes of the interval. Responses follow
    /// until the client closes the connection or the run ends.
    Watch {
        /// The interval, in milliseconds: 100 to 60 000.
        interval_ms: u64,
    },
    /// Checks a configuration and changes nothing. Files that it names are read.
    Check {
        /// The configuration as YAML. Relative names of files are relative to the folder of the configuration in force,
        /// and every `***` stands for the secret that is in force in its place.
        text: String,
        /// The folders in which the configuration may name files. If it is missing, the configuration may name any
        /// file.
        #[serde(default)]
        config_paths: Option<Vec<String>>,
    },
    /// Changes to another configuration. Settings of the start and of earlier reloads stay in force, except with
    /// `forget`.
    Reload {
        /// The configuration file (a path on the host of the instance) or `usecase:NAME`; without it, the file that the
        /// run was started from, read again.
        #[serde(default)]
        file: Option<String>,
        /// The configuration as YAML, in place of a file, as in `check`. Earlier settings are removed: the text that
        /// `config` returned contains them.
        #[serde(default)]
        text: Option<String>,
        /// The folders in which the configuration may name files. If it is missing, the configuration may name any
        /// file.
        #[serde(default)]
        config_paths: Option<Vec<String>>,
        /// Additional settings, `key=value`. Each replaces an earlier setting of its key.
        #[serde(default)]
        set: Option<Vec<String>>,
        /// Whether earlier settings are removed.
        #[serde(default)]
        forget: bool,
        /// The version of the configuration that this one replaces, as in the response to `config`. If another version
        /// is in force, because another client has changed the configuration, the reload is refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        if_version: Option<String>,
    },
    /// Moves modules of the configuration in force to other workers.
    Move {
        /// The modules with their workers, in order of priority.
        modules: Vec<WantedWorkers>,
        /// The largest number of modules that may move. If it is missing, there is no limit.
        #[serde(default)]
        most: Option<usize>,
        /// Whether modules may move even if they lose their sessions.
        #[serde(default)]
        lose_sessions: bool,
    },
    /// Requests the pipeline's graph.
    Graph {},
    /// Requests the tables that can be changed.
    Tables {},
    /// Requests entries of a table.
    Entries {
        /// The module.
        module: String,
        /// The table; may be left out if the module has only one.
        #[serde(default)]
        table: Option<String>,
        /// The last entry that the client knows. The response has the entries after it.
        #[serde(default)]
        after: Option<String>,
        /// A filter, if the table has filters: `10.0.0.0/8` for a table of sessions.
        #[serde(default)]
        filter: Option<String>,
        /// The largest number of entries in the response.
        most: usize,
    },
    /// Changes a table. The changes follow, one line each, and end with an empty line. The response comes after the
    /// last change.
    Change {
        /// The module.
        module: String,
        /// The table; may be left out if the module has only one.
        #[serde(default)]
        table: Option<String>,
    },
    /// Traces the next `count` packets. There is a response for each packet.
    Trace {
        /// The number of packets.
        count: u64,
        /// A filter: `tcp and dst port 443`.
        #[serde(default)]
        filter: Option<String>,
    },
    /// Requests the packets that are dropped from now on. There is a response for each packet.
    Drops {
        /// The largest number of packets. If it is missing, there is no limit.
        #[serde(default)]
        count: Option<u64>,
        /// The time after which the stream ends, in nanoseconds.
        #[serde(default)]
        for_ns: Option<u64>,
        /// A filter: `tcp and dst port 443`.
        #[serde(default)]
        filter: Option<String>,
    },
    /// Applies an action to a module.
    Act {
        /// The module.
        module: String,
        /// The action. The module index in the action is ignored.
        action: Action,
    },
    /// Requests events.
    Events {
        /// The number of the last event that the client knows; 0 for all events that are kept.
        #[serde(default)]
        after: u64,
        /// Whether the instance also sends later events when it records them. Responses follow until the client closes
        /// the connection or the run ends.
        #[serde(default)]
        follow: bool,
    },
    /// Ends the run.
    Stop {
        /// Whether the response comes only after the end.
        #[serde(default)]
        wait: bool,
    },
}

impl Request {
    /// Returns true if the request changes the running pipeline.
    #[must_use]
    pub fn is_change(&self) -> bool {
        matches!(self, Self::Reload { .. } | Self::Move { .. } | Self::Change { .. } | Self::Act { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Request {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn written(request: &Request) -> String {
        serde_json::to_string(request).expect("JSON")
    }

    /// An instance refuses unknown fields. So a client must not send a field that it does not use, because an older
    /// instance does not know the field.
    #[test]
    fn fields_that_are_not_used_are_not_sent() {
        let plain = Request::Report { recent: false, rules: Vec::new(), histograms: false };
        assert_eq!(written(&plain), "{\"do\":\"report\"}");
        assert_eq!(read("{\"do\":\"report\"}"), plain);
        let with_histograms = Request::Report { recent: false, rules: Vec::new(), histograms: true };
        assert_eq!(written(&with_histograms), "{\"do\":\"report\",\"histograms\":true}");
        assert_eq!(read(&written(&with_histograms)), with_histograms);
        let reload = |if_version: Option<&str>| Request::Reload {
            file: None,
            text: Some("batch: 8".to_owned()),
            config_paths: None,
            set: None,
            forget: false,
            if_version: if_version.map(str::to_owned),
        };
        assert!(!written(&reload(None)).contains("if_version"), "{}", written(&reload(None)));
        for request in [reload(None), reload(Some("0123456789ab"))] {
            assert_eq!(read(&written(&request)), request);
        }
        assert_eq!(read("{\"do\":\"reload\",\"text\":\"batch: 8\"}"), reload(None));
        assert_eq!(read("{\"do\":\"reload\",\"text\":\"batch: 8\",\"if_version\":null}"), reload(None));
    }
}
