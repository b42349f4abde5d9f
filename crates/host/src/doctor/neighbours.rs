//! Checks that the host's own stack does not send ARP replies or requests for the pipeline's addresses.

use std::net::{IpAddr, Ipv4Addr};

use super::{Case, Check, Observations, State, Verdict, listed};

pub(super) const ARP_FLUX: Check = Check {
    id: "arp-flux",
    looks_at: "the host does not reply to ARP requests for the pipeline's addresses at its `af_packet` ports",
    cost: "The host replies at every interface to ARP requests for each of its addresses, including the address of a \
           `tap`. The reply contains the interface's own Ethernet address. The sender of the request then sends its \
           packets to the host, and these packets are lost (Linux Documentation/networking/ip-sysctl.rst, arp_ignore).",
    fix: "`host: false` at the port, or `sysctl -w net.ipv4.conf.NAME.arp_ignore=1`",
    judge: arp_flux,
};

/// Costs performance if the host has an address of the pipeline, and if `arp_ignore` is 0 both for an interface and for
/// `all`.
fn arp_flux(case: &Case<'_>) -> Verdict {
    let seen = |port: &&super::Port| port.kind == "af_packet" && port.host && !port.elsewhere;
    let ports: Vec<_> = case.intent.ports.iter().filter(seen).collect();
    if ports.is_empty() {
        return match case.intent.pipeline {
            Some(_) => Verdict::ok("no `af_packet` port passes its frames to the host as well", Vec::new()),
            None => Verdict::unknown("no pipeline is given, so its ports are unknown"),
        };
    }
    let arp = &case.host.arp;
    let Some(shared) = shared(case) else {
        return Verdict::unknown(arp.addresses.why().unwrap_or_default());
    };
    if shared.is_empty() {
        return Verdict::ok("the host has none of the pipeline's addresses", vec![arp.addresses.evidence()]);
    }
    let shared = listed(&shared.iter().map(Ipv4Addr::to_string).collect::<Vec<_>>());
    let mut each = Observations::default();
    let mut remedy = Vec::new();
    for port in ports {
        let Some(name) = port.interface.as_deref() else { continue };
        let Some(interface) = case.host.interface(name) else {
            each.unknown.push(format!("interface '{name}' does not exist"));
            continue;
        };
        // The kernel uses the larger of the two settings.
        match (arp.ignore.value(), interface.arp_ignore.value()) {
            (Some(0), Some(0)) => {
                let evidence = [arp.ignore.evidence(), interface.arp_ignore.evidence(), arp.addresses.evidence()];
                each.wrong(format!("the host replies to ARP requests for {shared} at {name}, too"), evidence);
                remedy.push(format!("sysctl -w net.ipv4.conf.{name}.arp_ignore=1"));
                remedy.push(format!("# or in the configuration: host: false at the port '{}'", port.name));
            }
            (Some(1..), _) => each.fine.push(arp.ignore.evidence()),
            (_, Some(1..)) => each.fine.push(interface.arp_ignore.evidence()),
            _ => {
                each.unknown(&arp.ignore);
                each.unknown(&interface.arp_ignore);
            }
        }
    }
    Verdict::of_each(each, |wrong| (State::Costs, listed(wrong), remedy), "the host does not reply for these addresses")
}

/// Returns the IPv4 addresses that both the host and the pipeline have or will have. Returns `None` if the host's
/// addresses are unknown.
fn shared(case: &Case<'_>) -> Option<Vec<Ipv4Addr>> {
    let local = case.host.arp.addresses.value()?;
    // The host will have the address of a `tap` port. Other addresses are shared only if the host already has them.
    let taps = case.intent.ports.iter().filter(|port| !port.elsewhere).filter_map(|port| v4(port.address?));
    let own = case.intent.addresses.iter().copied().filter_map(v4).filter(|address| local.contains(address));
    let mut shared: Vec<Ipv4Addr> = taps.chain(own).collect();
    shared.sort_unstable();
    shared.dedup();
    Some(shared)
}

pub(super) const ARP_ANNOUNCE: Check = Check {
    id: "arp-announce",
    looks_at: "the host does not use the pipeline's addresses in ARP requests at its `af_packet` ports",
    cost: "An ARP request of the host contains the source address of the waiting packet, even if this address belongs \
           to another interface. The receivers of the request then send packets for this address to the host's \
           interface, and these packets are lost (Linux Documentation/networking/ip-sysctl.rst, arp_announce).",
    fix: "`sysctl -w net.ipv4.conf.NAME.arp_announce=2`",
    judge: arp_announce,
};

/// Checks only ports whose interface is used by a route of the host: the host sends only through these interfaces.
fn arp_announce(case: &Case<'_>) -> Verdict {
    if case.intent.pipeline.is_none() {
        return Verdict::unknown("no pipeline is given, so its ports are unknown");
    }
    let arp = &case.host.arp;
    let ports: Vec<_> = case.intent.ports.iter().filter(|port| port.kind == "af_packet" && !port.elsewhere).collect();
    if ports.is_empty() {
        return Verdict::ok("no port is of the kind `af_packet`", Vec::new());
    }
    let (Some(shared), Some(routes)) = (shared(case), arp.routes.value()) else {
        return Verdict::unknown(arp.addresses.why().or(arp.routes.why()).unwrap_or_default());
    };
    let mut each = Observations::default();
    let mut remedy = Vec::new();
    let text = listed(&shared.iter().map(Ipv4Addr::to_string).collect::<Vec<_>>());
    for name in ports.iter().filter_map(|port| port.interface.as_deref()).filter(|_| !shared.is_empty()) {
        if !routes.all.contains(name) {
            each.fine.push(arp.routes.evidence());
            continue;
        }
        let Some(interface) = case.host.interface(name) else {
            each.unknown.push(format!("interface '{name}' does not exist"));
            continue;
        };
        // The kernel uses the larger of the two settings.
        match (arp.announce.value(), interface.arp_announce.value()) {
            (Some(0), Some(0)) => {
                let evidence = [arp.announce.evidence(), interface.arp_announce.evidence(), arp.routes.evidence()];
                each.wrong(format!("the host may use {text} in ARP requests at {name}"), evidence);
                remedy.push(format!("sysctl -w net.ipv4.conf.{name}.arp_announce=2"));
            }
            (Some(1..), _) => each.fine.push(arp.announce.evidence()),
            (_, Some(1..)) => each.fine.push(interface.arp_announce.evidence()),
            _ => {
                each.unknown(&arp.announce);
                each.unknown(&interface.arp_announce);
            }
        }
    }
    Verdict::of_each(each, |wrong| (State::May, listed(wrong), remedy), "the host does not use these addresses")
}

/// Returns an IPv4 address, or `None` for IPv6.
fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    if let IpAddr::V4(address) = address { Some(address) } else { None }
}
