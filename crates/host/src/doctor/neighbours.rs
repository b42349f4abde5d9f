//! Whether the host's own stack answers ARP, or names addresses in it, beside the pipeline.

use std::net::{IpAddr, Ipv4Addr};

use super::{Case, Check, Each, State, Verdict, listed};

pub(super) const ARP_FLUX: Check = Check {
    id: "arp-flux",
    looks_at: "the host does not answer ARP for the pipeline's addresses at its `af_packet` ports",
    cost: "The host answers ARP at every interface for each of its addresses, that of a `tap` among them, with the interface's \
           own Ethernet address. Who asks then sends to the host, and its packets are lost (Linux \
           Documentation/networking/ip-sysctl.rst, arp_ignore).",
    mend: "`host: false` of the port, or `sysctl -w net.ipv4.conf.NAME.arp_ignore=1`",
    judge: arp_flux,
};

fn arp_flux(case: &Case<'_>) -> Verdict {
    let seen = |port: &&super::Port| port.kind == "af_packet" && port.host && !port.elsewhere;
    let ports: Vec<_> = case.intent.ports.iter().filter(seen).collect();
    if ports.is_empty() {
        return match case.intent.pipeline {
            Some(_) => Verdict::ok("no `af_packet` port leaves its frames to the host as well", Vec::new()),
            None => Verdict::unknown("no pipeline is named, so that its ports are not known"),
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
    let mut each = Each::default();
    let mut remedy = Vec::new();
    for port in ports {
        let Some(name) = port.interface.as_deref() else { continue };
        let Some(interface) = case.host.interface(name) else {
            each.unknown.push(format!("there is no interface '{name}'"));
            continue;
        };
        // The kernel takes the larger one.
        match (arp.ignore.value(), interface.arp_ignore.value()) {
            (Some(0), Some(0)) => {
                let evidence = [arp.ignore.evidence(), interface.arp_ignore.evidence(), arp.addresses.evidence()];
                each.wrong(format!("the host answers ARP for {shared} at {name}, too"), evidence);
                remedy.push(format!("sysctl -w net.ipv4.conf.{name}.arp_ignore=1"));
                remedy.push(format!("# or in the configuration: host: false of the port '{}'", port.name));
            }
            (Some(1..), _) => each.fine.push(arp.ignore.evidence()),
            (_, Some(1..)) => each.fine.push(interface.arp_ignore.evidence()),
            _ => {
                each.unknown(&arp.ignore);
                each.unknown(&interface.arp_ignore);
            }
        }
    }
    Verdict::of_each(each, |wrong| (State::Costs, listed(wrong), remedy), "it does not answer for them there")
}

/// The addresses that the host has, or will have, and the pipeline, too; `None` where it is not known which it has.
fn shared(case: &Case<'_>) -> Option<Vec<Ipv4Addr>> {
    let local = case.host.arp.addresses.value()?;
    // A tap's address will be the host's; another is if the host has it already.
    let taps = case.intent.ports.iter().filter(|port| !port.elsewhere).filter_map(|port| v4(port.address?));
    let own = case.intent.addresses.iter().copied().filter_map(v4).filter(|address| local.contains(address));
    let mut shared: Vec<Ipv4Addr> = taps.chain(own).collect();
    shared.sort_unstable();
    shared.dedup();
    Some(shared)
}

pub(super) const ARP_ANNOUNCE: Check = Check {
    id: "arp-announce",
    looks_at: "the host does not name the pipeline's addresses in ARP requests at its `af_packet` ports",
    cost: "A request names the source of the packet that waits, whichever interface has that address. Who reads it \
           sends packets for the address to the interface's own Ethernet address from then on, and they are lost \
           (Linux Documentation/networking/ip-sysctl.rst, arp_announce).",
    mend: "`sysctl -w net.ipv4.conf.NAME.arp_announce=2`",
    judge: arp_announce,
};

/// Only where the host sends by the port's interface: some route leads there.
fn arp_announce(case: &Case<'_>) -> Verdict {
    if case.intent.pipeline.is_none() {
        return Verdict::unknown("no pipeline is named, so that its ports are not known");
    }
    let arp = &case.host.arp;
    let ports: Vec<_> = case.intent.ports.iter().filter(|port| port.kind == "af_packet" && !port.elsewhere).collect();
    if ports.is_empty() {
        return Verdict::ok("no port is of the kind `af_packet`", Vec::new());
    }
    let (Some(shared), Some(routes)) = (shared(case), arp.routes.value()) else {
        return Verdict::unknown(arp.addresses.why().or(arp.routes.why()).unwrap_or_default());
    };
    let mut each = Each::default();
    let mut remedy = Vec::new();
    let text = listed(&shared.iter().map(Ipv4Addr::to_string).collect::<Vec<_>>());
    for name in ports.iter().filter_map(|port| port.interface.as_deref()).filter(|_| !shared.is_empty()) {
        if !routes.all.contains(name) {
            each.fine.push(arp.routes.evidence());
            continue;
        }
        let Some(interface) = case.host.interface(name) else {
            each.unknown.push(format!("there is no interface '{name}'"));
            continue;
        };
        // The kernel takes the larger one.
        match (arp.announce.value(), interface.arp_announce.value()) {
            (Some(0), Some(0)) => {
                let evidence = [arp.announce.evidence(), interface.arp_announce.evidence(), arp.routes.evidence()];
                each.wrong(format!("the host may name {text} in ARP requests at {name}"), evidence);
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
    Verdict::of_each(each, |wrong| (State::May, listed(wrong), remedy), "it does not name them there")
}

fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    if let IpAddr::V4(address) = address { Some(address) } else { None }
}
