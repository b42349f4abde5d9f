//! `firewall n`: Octans' Firewall (section VI.A), which tracks connections. What goes out opens them as rules allow; the far side
//! answers each packet, and answers pass by the connection that they are of. Behind it forwarding to n next hops. 4 + n modules.
//!
//! The far side is a module, `ip_swap`: so every packet takes both ways, and none comes before the one that it answers.

use super::text::{FAR, Text, hops, prefix, room};
use super::{Values, Wrong};

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

/// A generator of what `prefixes` of clients inside send out; answers to them go back there. `size` is how frames' lengths are
/// written, where it is not as is said.
pub(super) fn inside(text: &mut Text, name: &str, prefixes: u64, size: Option<&str>) {
    let sources: Vec<_> = (0..prefixes).map(prefix).collect();
    let lines = [format!("source: [{}]", sources.join(", ")), format!("destination: {FAR}")];
    let size = size.map_or_else(|| text.size().to_string(), str::to_owned);
    text.generator_with(name, (1, prefixes), &size, &lines);
}
