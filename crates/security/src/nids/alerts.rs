//! Alerts as lines of a file, which a [`journal`](forebay_tables::journal) writes.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use forebay_tables::journal::{self, Record};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::eve;
use super::groups::Ruleset;
use super::rule::Action;
use super::view::View;

/// The format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// A JSON object in Forebay's own format.
    #[default]
    Json,
    /// An event of Suricata's EVE JSON.
    Eve,
}

/// The data from which alerts are formatted as lines, besides the alerts.
pub struct Lines {
    /// The rules that the alerts refer to.
    pub rules: Arc<Ruleset>,
    /// The format of the lines.
    pub format: Format,
}

/// An alert as a worker records it.
#[derive(Clone, Copy, Debug)]
pub struct Alert {
    /// The time in nanoseconds since 1970.
    pub nanos: u64,
    /// The rule's index.
    pub rule: u32,
    /// The rule's action.
    pub action: Action,
    /// The packet.
    pub view: View,
}

/// Formats `number`, the source or destination address of `view`, as IPv4 or IPv6 text.
pub(super) fn address(view: &View, number: u128) -> String {
    match view.v6 {
        true => Ipv6Addr::from_bits(number).to_string(),
        false => Ipv4Addr::from_bits(number as u32).to_string(),
    }
}

/// The JSON object of an alert.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    module: &'a str,
    action: &'static str,
    sid: u32,
    rev: u32,
    msg: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'a str>,
    priority: u8,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    references: &'a [String],
    protocol: u8,
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_port: Option<u16>,
    destination: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination_port: Option<u16>,
    /// The length of the payload, in bytes.
    payload: u16,
}

impl Record for Alert {
    type With = Lines;
    const RING: usize = 8_192;
    type Memory = ();

    fn nanos(&self) -> u64 {
        self.nanos
    }

    fn line(&self, module: &str, Lines { rules, format }: &Lines) -> Option<String> {
        if *format == Format::Eve {
            return eve::line(self, rules);
        }
        let rule = rules.rules.get(self.rule as usize)?;
        let view = &self.view;
        let line = Line {
            time: journal::time(self.nanos),
            module,
            action: self.action.name(),
            sid: rule.sid,
            rev: rule.revision,
            msg: &rule.message,
            class: rule.class.as_deref(),
            priority: rule.priority,
            references: &rule.references,
            protocol: view.protocol,
            source: address(view, view.source),
            source_port: view.ports.map(|(from, _)| from),
            destination: address(view, view.destination),
            destination_port: view.ports.map(|(_, to)| to),
            payload: view.payload.1 - view.payload.0,
        };
        serde_json::to_string(&line).ok()
    }
}
