//! `vrf m n`: EtherType (802.1Q), destination MAC, VLAN split; for each virtual router VLAN pop and IPv4 lookup, and
//! for each of its next hops ACL, static NAT, time to live, MAC rewrite and IP checksum. 3 + 2m + 5mn modules.

use super::parameters::{Values, Wrong};
use super::text::{Text, Traffic, entry, guard, lookup, prefix};

pub(super) fn write(values: &Values) -> Result<String, Wrong> {
    let (m, n) = (values.whole("m", 1, 1_024)?, values.whole("n", 1, 4_096)?);
    if m * n > 4_096 {
        return Err((
            "n",
            format!("{m} routers with {n} next hops each are {} branches: allowed are up to 4096", m * n),
        ));
    }
    let mut text = Text::new(&format!("vrf-{m}-{n}"), values)?;
    let destinations: Vec<_> = (0..n).map(prefix).collect();
    let routes: Vec<_> = (0..n).map(|number| format!("{} {number}", prefix(number))).collect();
    let ids: Vec<_> = (1..=m).map(|id| id.to_string()).collect();
    // All virtual routers have the same prefixes, because the purpose of virtual routers is to keep equal prefixes
    // apart.
    text.generator("in", &Traffic { destinations: &destinations, vlans: m });
    text.sink();
    text.line("in -> ether");
    text.line("ether[vlan] -> l2 -> vlans");
    entry(&mut text, "vlan");
    text.module("vlans", "vlan_split", &format!(" ids: [{}] ", ids.join(", ")));
    text.line("vlans[other] -> drop");
    for id in 1..=m {
        text.line(&format!("vlans[{id}] -> pop{id} -> route{id}"));
        text.module(&format!("pop{id}"), "vlan_pop", "");
        lookup(&mut text, &format!("route{id}"), &routes);
        for hop in 0..n {
            let modules = guard(&mut text, (id - 1) * n + hop, &format!("{id}_{hop}"));
            let slo = text.slo();
            let before = format!("vlans[{id}] -> pop{id} -> ");
            text.branch(&format!("vrf{id}_hop{hop}"), &before, &format!("route{id}[{hop}]"), &modules, slo);
        }
    }
    Ok(text.finish())
}
