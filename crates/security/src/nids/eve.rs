//! Alerts in the format of Suricata's EVE JSON: one event of the type `alert` per line.

use forebay_packet::wire::ipv4::{ICMP, TCP, UDP};
use serde::Serialize;

use super::alerts::{Alert, address};
use super::classes;
use super::groups::Ruleset;
use super::rule::Action;
use crate::inspection::payload::ICMPV6;

/// An event.
#[derive(Serialize)]
struct Event<'a> {
    timestamp: String,
    event_type: &'static str,
    src_ip: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    src_port: Option<u16>,
    dest_ip: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dest_port: Option<u16>,
    proto: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_type: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_code: Option<u8>,
    alert: Described<'a>,
}

/// The rule of an event.
#[derive(Serialize)]
struct Described<'a> {
    action: &'static str,
    gid: u32,
    signature_id: u32,
    rev: u32,
    signature: &'a str,
    category: &'a str,
    severity: u8,
}

/// Formats the line of an alert.
pub(super) fn line(alert: &Alert, rules: &Ruleset) -> Option<String> {
    let rule = rules.rules.get(alert.rule as usize)?;
    let view = &alert.view;
    let class = rule.class.as_deref().unwrap_or_default();
    let event = Event {
        timestamp: timestamp(alert.nanos),
        event_type: "alert",
        src_ip: address(view, view.source),
        src_port: view.ports.map(|(from, _)| from),
        dest_ip: address(view, view.destination),
        dest_port: view.ports.map(|(_, to)| to),
        proto: protocol(view.protocol),
        icmp_type: view.icmp.map(|(number, _)| number),
        icmp_code: view.icmp.map(|(_, code)| code),
        alert: Described {
            action: if alert.action == Action::Drop { "blocked" } else { "allowed" },
            gid: rule.generator,
            signature_id: rule.sid,
            rev: rule.revision,
            signature: &rule.message,
            category: rules.categories.get(class).map_or_else(|| classes::text(class), String::as_str),
            severity: rule.priority,
        },
    };
    serde_json::to_string(&event).ok()
}

/// Formats a time in UTC with microseconds, as Suricata writes it.
fn timestamp(nanos: u64) -> String {
    let time = jiff::Timestamp::from_nanosecond(nanos.into()).unwrap_or(jiff::Timestamp::MAX);
    time.strftime("%Y-%m-%dT%H:%M:%S.%6f+0000").to_string()
}

/// Returns the name of a protocol above IP, or its number with three digits if it has no name here.
fn protocol(number: u8) -> String {
    let name = match number {
        ICMP => "ICMP",
        2 => "IGMP",
        TCP => "TCP",
        UDP => "UDP",
        41 => "IPv6",
        47 => "GRE",
        50 => "ESP",
        51 => "AH",
        ICMPV6 => "IPv6-ICMP",
        132 => "SCTP",
        _ => return format!("{number:03}"),
    };
    name.to_owned()
}
