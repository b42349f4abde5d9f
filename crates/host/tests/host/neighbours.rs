//! Tests the checks of the host's own stack. The stack may reply to ARP requests for the pipeline's addresses, use
//! these addresses in its own requests, or drop packets.

use forebay_host::doctor::{Intent, State};

use crate::server::Server;
use crate::{diagnosed, intent, outcome};

/// Regression test: the kernel replied to ARP for the address of a `tap`, and the network silently lost its gateway.
#[test]
fn a_host_that_answers_arp_for_the_pipelines_addresses_is_found() {
    let mut server = Server::healthy();
    server.set("/proc/sys/net/ipv4/conf/eth1/arp_ignore", "0\n");
    let checked = |server: &Server, intent: &Intent| outcome(&diagnosed(server, intent), "arp-flux").clone();
    let found = checked(&server, &intent());
    assert_eq!(
        (found.state, found.says.as_str()),
        (State::Costs, "the host replies to ARP requests for 192.0.2.1 at eth1, too")
    );
    assert_eq!(found.remedy[0], "sysctl -w net.ipv4.conf.eth1.arp_ignore=1");
    // The kernel uses the larger of an interface's setting and that of all interfaces.
    server.set("/proc/sys/net/ipv4/conf/all/arp_ignore", "2\n");
    assert_eq!(checked(&server, &intent()).state, State::Ok);
    server.set("/proc/sys/net/ipv4/conf/all/arp_ignore", "0\n");
    // No finding if the host's stack gets no frames, or if it has none of the addresses.
    let mut alone = intent();
    alone.ports[0].host = false;
    assert_eq!(checked(&server, &alone).state, State::Ok);
    let mut other = intent();
    other.ports[1].address = None;
    assert_eq!(checked(&server, &other).state, State::Costs, "the host has the address already");
    server.set("/proc/net/fib_trie", "Local:\n");
    assert_eq!(checked(&server, &other).state, State::Ok);
    server.set("/proc/sys/net/ipv4/conf/eth1/arp_ignore", "many\n");
    let found = checked(&server, &intent());
    assert_eq!((found.state, found.says.contains("arp_ignore")), (State::NotAvailable, true), "{found:?}");
}

/// Regression test: a host that used a gateway's address in its own requests received the gateway's packets, and a host
/// with a strict filter dropped packets from the Internet.
#[test]
fn a_host_that_names_the_pipelines_addresses_or_drops_its_packets_is_found() {
    let checked = |server: &Server, intent: &Intent, id: &str| outcome(&diagnosed(server, intent), id).clone();
    let mut server = Server::healthy();
    server.routes("fb0", "eth1");
    let found = checked(&server, &intent(), "arp-announce");
    let says = "the host may use 192.0.2.1 in ARP requests at eth1";
    assert_eq!((found.state, found.says.as_str()), (State::May, says));
    assert_eq!(found.remedy, ["sysctl -w net.ipv4.conf.eth1.arp_announce=2"]);
    for name in ["eth1", "all"] {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/arp_announce");
        server.set(&path, "2\n");
        assert_eq!(checked(&server, &intent(), "arp-announce").state, State::Ok);
        server.set(&path, "0\n");
    }
    server.set("/proc/sys/net/ipv4/conf/eth1/arp_announce", "many\n");
    assert_eq!(checked(&server, &intent(), "arp-announce").state, State::NotAvailable);

    let mut server = Server::healthy();
    server.routes("eth0", "fb0").set("/sys/class/net/fb0/operstate", "up\n");
    let found = checked(&server, &intent(), "rp-filter");
    let says = "the host drops packets from the Internet at fb0: its default route uses eth0";
    assert_eq!((found.state, found.says.as_str()), (State::May, says));
    assert_eq!(found.remedy, ["sysctl -w net.ipv4.conf.fb0.rp_filter=2"]);
    // A tap alone is not part of a gateway.
    let mut alone = intent();
    alone.ports.retain(|port| port.kind == "tap");
    assert_eq!(checked(&server, &alone, "rp-filter").state, State::Ok);
    // An interface that does not exist yet gets the default setting.
    let mut new = intent();
    new.ports[1].interface = Some("fb1".to_owned());
    let found = checked(&server, &new, "rp-filter");
    assert_eq!(found.remedy, ["# once fb1 exists:", "sysctl -w net.ipv4.conf.fb1.rp_filter=2"]);
    // Loose filtering (2) is larger than strict filtering (1).
    server.set("/proc/sys/net/ipv4/conf/fb0/rp_filter", "2\n");
    assert_eq!(checked(&server, &intent(), "rp-filter").state, State::Ok);
    server.set("/proc/sys/net/ipv4/conf/fb0/rp_filter", "x\n");
    assert_eq!(checked(&server, &intent(), "rp-filter").state, State::NotAvailable);
}
