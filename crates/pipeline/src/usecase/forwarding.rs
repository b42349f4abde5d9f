//! `forward n`: EdgeMiner's Forward (section 3.1.2): looks up the destination and forwards the packet. 1 + n modules.
//!
//! `router n`: Octans' IPv4Router (section VI.A), according to RFC 1812 section 5.2: checks the header, looks up the
//! route, decrements the time to live and updates the checksum. 2 + 3n modules.

use super::parameters::{Values, Wrong};
use super::text::{Text, Traffic, hops, lookup, prefix, rewrite};

pub(super) fn write_forward(values: &Values) -> Result<String, Wrong> {
    let n = values.whole("n", 1, 4_096)?;
    let mut text = Text::new(&format!("forward-{n}"), values)?;
    let destinations: Vec<_> = (0..n).map(prefix).collect();
    text.generator("in", &Traffic { destinations: &destinations, vlans: 0 });
    text.sink();
    text.line("in -> route");
    hops(&mut text, n, "");
    Ok(text.finish())
}

pub(super) fn write_router(values: &Values) -> Result<String, Wrong> {
    let (n, routes) = (values.whole("n", 1, 4_096)?, values.whole("routes", 1, 65_536)?);
    if routes < n {
        return Err(("routes", format!("{routes} routes are too few for {n} next hops: allowed are {n} to 65536")));
    }
    let mut text = Text::new(&format!("router-{n}"), values)?;
    // Rounded down, so that traffic goes to the same number of prefixes for every next hop.
    let destinations: Vec<_> = (0..routes / n * n).map(prefix).collect();
    text.generator("in", &Traffic { destinations: &destinations, vlans: 0 });
    text.sink();
    text.line("in -> valid -> route");
    text.module("valid", "ip_validate", "");
    let routes: Vec<_> = (0..routes).map(|number| format!("{} {}", prefix(number), number % n)).collect();
    lookup(&mut text, "route", &routes);
    for hop in 0..n {
        let modules = rewrite(&mut text, hop, &hop.to_string());
        let slo = text.slo();
        text.branch(&format!("hop{hop}"), "", &format!("route[{hop}]"), &modules, slo);
    }
    Ok(text.finish())
}
