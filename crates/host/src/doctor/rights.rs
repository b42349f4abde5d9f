//! Checks that the process may open the pipeline's ports.

use super::{Case, Check, Observations, Port, State, Verdict, listed};
use crate::process::Right;

pub(super) const CAPABILITIES: Check = Check {
    id: "capabilities",
    looks_at: "the process has the rights that the pipeline's ports need",
    cost: "The port cannot be opened, and the pipeline does not start (capabilities(7)).",
    fix: "`setcap cap_net_admin+ep $(command -v forebay)`, root, or a prepared interface (`ip tuntap add … user …`)",
    judge: capabilities,
};

/// Returns the capabilities that a port of this type needs. TAP: Linux Documentation/networking/tuntap.rst. AF_PACKET:
/// packet(7). AF_XDP: its program is loaded by bpf(2) and attached by rtnetlink(7).
fn needs(port: &Port) -> Vec<Right> {
    let mut needs = match port.kind.as_str() {
        "tap" => vec![Right::NetAdmin],
        // With `host: false`, a kernel program keeps the frames from the host: bpf(2).
        "af_packet" if !port.host => vec![Right::NetAdmin, Right::NetRaw, Right::Bpf],
        "af_packet" => vec![Right::NetRaw],
        "af_xdp" => vec![Right::NetAdmin, Right::NetRaw, Right::Bpf],
        _ => Vec::new(),
    };
    // To enter another network namespace: setns(2).
    if port.elsewhere {
        needs.push(Right::SysAdmin);
    }
    needs
}

/// A missing capability prevents the pipeline from running.
fn capabilities(case: &Case<'_>) -> Verdict {
    if case.intent.pipeline.is_none() {
        return Verdict::unknown("no pipeline is given, so its ports are unknown");
    }
    let ports = &case.intent.ports;
    if ports.iter().all(|port| needs(port).is_empty()) {
        return Verdict::ok("no port needs a capability", Vec::new());
    }
    let process = &case.host.process;
    let Some(rights) = process.rights.value() else {
        return Verdict::unknown(process.rights.why().unwrap_or_default());
    };
    let mut each = Observations::default();
    each.fine.push(process.rights.evidence());
    let mut missing = Vec::new();
    for port in ports {
        let lacks: Vec<Right> = needs(port).into_iter().filter(|right| !rights.has(*right)).collect();
        if lacks.is_empty() {
            continue;
        }
        // The owner of a prepared interface can open it without the capability, as long as its settings are not
        // changed.
        if lacks == [Right::NetAdmin] && port.kind == "tap" {
            let interface = port.interface.as_deref().and_then(|name| case.host.interface(name));
            let owner = interface.and_then(|interface| Some((interface.owner.value()?.as_ref()?, interface)));
            if let Some((_, interface)) = owner.filter(|(owner, _)| Some(*owner) == process.user.value()) {
                each.fine.push(interface.owner.evidence());
                continue;
            }
        }
        let names: Vec<_> = lacks.iter().map(|right| right.name().to_uppercase()).collect();
        each.wrong(format!("port '{}' ({}) needs {}", port.name, port.kind, names.join(" and ")), []);
        missing.extend(lacks);
    }
    if !each.wrong.is_empty() {
        each.evidence.push(process.rights.evidence());
    }
    missing.sort_unstable();
    missing.dedup();
    let names: Vec<_> = missing.iter().map(|right| right.name()).collect();
    let mut remedy = vec![format!("setcap {}+ep $(command -v forebay)", names.join(","))];
    let tap =
        ports.iter().find(|port| port.kind == "tap" && !port.elsewhere).and_then(|port| port.interface.as_deref());
    if let Some(interface) = tap.filter(|_| missing == [Right::NetAdmin]) {
        remedy.push(format!(
            "# or once, as root: ip tuntap add dev {interface} mode tap user NAME && ip link set {interface} up"
        ));
    }
    Verdict::of_each(each, |wrong| (State::Stops, listed(wrong), remedy), "the process has the capabilities")
}
