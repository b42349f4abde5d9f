//! Checks that the host does not drop packets of the pipeline because of the routes to their sources.

use super::{Case, Check, Observations, State, Verdict, listed};

pub(super) const RP_FILTER: Check = Check {
    id: "rp-filter",
    looks_at: "the host accepts packets from the Internet at the pipeline's `tap`",
    cost: "With a strict `rp_filter`, the host silently drops a packet if the host's route to the packet's source uses \
           another interface. If the default route does not use the `tap`, the host drops all packets from the \
           Internet at the `tap` (RFC 3704; Linux Documentation/networking/ip-sysctl.rst, rp_filter).",
    fix: "a default route through the `tap`, or `sysctl -w net.ipv4.conf.NAME.rp_filter=2`",
    judge: rp_filter,
};

/// The value of `rp_filter` for strict filtering. 0 means no filtering, and 2 accepts any route to the source. The
/// kernel uses the larger of two settings: that of the interface, and that of all interfaces.
const STRICT: u32 = 1;

/// Checks only gateways: pipelines with a `tap` port at which the host has an address, and a port of another type with
/// an interface.
fn rp_filter(case: &Case<'_>) -> Verdict {
    if case.intent.pipeline.is_none() {
        return Verdict::unknown("no pipeline is given, so its ports are unknown");
    }
    let visible = || case.intent.ports.iter().filter(|port| !port.elsewhere && port.interface.is_some());
    let taps: Vec<_> = visible().filter(|port| port.kind == "tap" && port.address.is_some()).collect();
    if taps.is_empty() || !visible().any(|port| port.kind != "tap") {
        return Verdict::ok("no `tap` is between the host and other interfaces", Vec::new());
    }
    let arp = &case.host.arp;
    let Some(routes) = arp.routes.value() else {
        return Verdict::unknown(arp.routes.why().unwrap_or_default());
    };
    let (mut each, mut remedy) = (Observations::default(), Vec::new());
    for name in taps.iter().filter_map(|port| port.interface.as_deref()) {
        // Without a default route, the host does not reply to packets from the Internet.
        if routes.default.is_empty() || routes.default.contains(name) {
            each.fine.push(arp.routes.evidence());
            continue;
        }
        let interface = case.host.interface(name);
        let own = interface.map_or(&arp.reverse_path_of_new, |interface| &interface.rp_filter);
        match (arp.reverse_path.value(), own.value()) {
            (Some(all), Some(one)) if *all.max(one) == STRICT => {
                let others = listed(&routes.default.iter().cloned().collect::<Vec<_>>());
                let says =
                    format!("the host drops packets from the Internet at {name}: its default route uses {others}");
                each.wrong(says, [arp.reverse_path.evidence(), own.evidence(), arp.routes.evidence()]);
                if interface.is_none() {
                    remedy.push(format!("# once {name} exists:"));
                }
                remedy.push(format!("sysctl -w net.ipv4.conf.{name}.rp_filter=2"));
            }
            (Some(_), Some(_)) => each.fine.extend([arp.reverse_path.evidence(), own.evidence()]),
            _ => {
                each.unknown(&arp.reverse_path);
                each.unknown(own);
            }
        }
    }
    Verdict::of_each(each, |wrong| (State::May, listed(wrong), remedy), "the host accepts packets from the Internet")
}
