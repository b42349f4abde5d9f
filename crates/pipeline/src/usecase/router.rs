//! `l2l3 n`: EtherType, destination MAC, IPv4 lookup among 500 prefixes; for each next hop time to live, MAC rewrite
//! and IP checksum. 3 + 3n modules.

use super::parameters::{Values, Wrong};
use super::text::{Text, Traffic, entry, lookup, prefix, rewrite};

const PREFIXES: u64 = 500;

pub(super) fn write(values: &Values) -> Result<String, Wrong> {
    let n = values.whole("n", 1, 4_096)?;
    let mut text = Text::new(&format!("l2l3-{n}"), values)?;
    let routes: Vec<_> = (0..PREFIXES.max(n)).map(|number| format!("{} {}", prefix(number), number % n)).collect();
    // Traffic goes to the same number of prefixes for every next hop.
    let destinations: Vec<_> = (0..routes.len() as u64 / n * n).map(prefix).collect();
    text.generator("in", &Traffic { destinations: &destinations, vlans: 0 });
    text.sink();
    text.line("in -> ether");
    text.line("ether[ipv4] -> l2 -> route");
    entry(&mut text, "ipv4");
    lookup(&mut text, "route", &routes);
    for hop in 0..n {
        let modules = rewrite(&mut text, hop, &hop.to_string());
        let slo = text.slo();
        text.branch(&format!("hop{hop}"), "", &format!("route[{hop}]"), &modules, slo);
    }
    Ok(text.finish())
}
