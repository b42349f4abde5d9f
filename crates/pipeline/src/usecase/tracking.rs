//! `firewall n`: Octans' Firewall (section VI.A), which tracks connections. Outgoing packets open connections if rules
//! allow it. The remote side replies to each packet, and replies pass because of their connection. Then packets are
//! forwarded to n next hops. 4 + n modules.
//!
//! The remote side is a module, `ip_swap`, so that every packet passes in both directions, and no reply comes before
//! its request.

use super::parameters::{Values, Wrong};
use super::text::{FAR, Text, hops, prefix, room};

pub(super) fn write_firewall(values: &Values) -> Result<String, Wrong> {
    let (n, rules) = (values.whole("n", 1, 4_096)?, values.whole("rules", 1, 100_000)?);
    let mut text = Text::new(&format!("firewall-{n}"), values)?;
    inside(&mut text, "in", n, None);
    text.sink();
    text.state(&format!("known: {{ connections: {{ sessions: {} }} }}", room(text.sessions(n))));
    text.line("in -> fw -> peer -> back -> route");
    text.module("fw", "firewall", &format!(" state: known, rules: {{ synthetic: {rules} }}, default: permit "));
    text.module("peer", "ip_swap", "");
    text.module("back", "firewall", " state: known ");
    hops(&mut text, n, "");
    Ok(text.finish())
}

/// Writes a generator of the packets that clients in `prefixes` prefixes send to the remote side. `size` is the text of
/// the generator's parameter `size`; the configured size by default.
pub(super) fn inside(text: &mut Text, name: &str, prefixes: u64, size: Option<&str>) {
    let sources: Vec<_> = (0..prefixes).map(prefix).collect();
    let lines = [format!("source: [{}]", sources.join(", ")), format!("destination: {FAR}")];
    let size = size.map_or_else(|| text.size().to_string(), str::to_owned);
    text.generator_with(name, (1, prefixes), &size, &lines);
}
