//! `gw n`: EtherType, destination MAC, IPv4 lookup; for each next hop ACL of 100 rules, static NAT, time to live, MAC
//! rewrite and IP checksum. 3 + 5n modules.

use super::parameters::{Values, Wrong};
use super::text::{Text, Traffic, entry, guard, lookup, prefix};

pub(super) fn write(values: &Values) -> Result<String, Wrong> {
    let n = values.whole("n", 1, 4_096)?;
    let mut text = Text::new(&format!("gw-{n}"), values)?;
    let routes: Vec<_> = (0..n).map(|number| format!("{} {number}", prefix(number))).collect();
    let destinations: Vec<_> = (0..n).map(prefix).collect();
    text.generator("in", &Traffic { destinations: &destinations, vlans: 0 });
    text.sink();
    text.line("in -> ether");
    text.line("ether[ipv4] -> l2 -> route");
    entry(&mut text, "ipv4");
    lookup(&mut text, "route", &routes);
    for hop in 0..n {
        let modules = guard(&mut text, hop, &hop.to_string());
        let slo = text.slo();
        text.branch(&format!("hop{hop}"), "", &format!("route[{hop}]"), &modules, slo);
    }
    Ok(text.finish())
}
