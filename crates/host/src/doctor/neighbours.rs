//! Whether the host's own stack answers ARP beside the pipeline.

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
    let Some(local) = arp.addresses.value() else {
        return Verdict::unknown(arp.addresses.why().unwrap_or_default());
    };
    // A tap's address will be the host's; another is if the host has it already.
    let taps = case.intent.ports.iter().filter(|port| !port.elsewhere).filter_map(|port| v4(port.address?));
    let own = case.intent.addresses.iter().copied().filter_map(v4).filter(|address| local.contains(address));
    let mut shared: Vec<Ipv4Addr> = taps.chain(own).collect();
    shared.sort_unstable();
    shared.dedup();
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

fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    if let IpAddr::V4(address) = address { Some(address) } else { None }
}
