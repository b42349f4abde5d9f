//! A host beside a pipeline: it answers ARP for the pipeline's addresses, names them, or drops the pipeline's packets.

use forebay_host::doctor::{Intent, State};

use crate::server::Server;
use crate::{diagnosed, intent, outcome};

/// The kernel answered ARP for the address of a `tap`, and the network lost its gateway without a word.
#[test]
fn a_host_that_answers_arp_for_the_pipelines_addresses_is_found() {
    let mut server = Server::healthy();
    server.set("/proc/sys/net/ipv4/conf/eth1/arp_ignore", "0\n");
    let told = |server: &Server, intent: &Intent| outcome(&diagnosed(server, intent), "arp-flux").clone();
    let found = told(&server, &intent());
    assert_eq!((found.state, found.says.as_str()), (State::Costs, "the host answers ARP for 192.0.2.1 at eth1, too"));
    assert_eq!(found.remedy[0], "sysctl -w net.ipv4.conf.eth1.arp_ignore=1");
    // The kernel takes the larger one of an interface's setting and that of all.
    server.set("/proc/sys/net/ipv4/conf/all/arp_ignore", "2\n");
    assert_eq!(told(&server, &intent()).state, State::Ok);
    server.set("/proc/sys/net/ipv4/conf/all/arp_ignore", "0\n");
    // Neither where the host's stack gets no frames, nor where it has none of the addresses.
    let mut alone = intent();
    alone.ports[0].host = false;
    assert_eq!(told(&server, &alone).state, State::Ok);
    let mut other = intent();
    other.ports[1].address = None;
    assert_eq!(told(&server, &other).state, State::Costs, "it has the address already");
    server.set("/proc/net/fib_trie", "Local:\n");
    assert_eq!(told(&server, &other).state, State::Ok);
    server.set("/proc/sys/net/ipv4/conf/eth1/arp_ignore", "many\n");
    let found = told(&server, &intent());
    assert_eq!((found.state, found.says.contains("arp_ignore")), (State::NotAvailable, true), "{found:?}");
}

/// A host that named a gateway's address in its own requests took it over; one with a strict filter lost its packets.
#[test]
fn a_host_that_names_the_pipelines_addresses_or_drops_its_packets_is_found() {
    let told = |server: &Server, intent: &Intent, id: &str| outcome(&diagnosed(server, intent), id).clone();
    let mut server = Server::healthy();
    server.routes("fb0", "eth1");
    let found = told(&server, &intent(), "arp-announce");
    let says = "the host may name 192.0.2.1 in ARP requests at eth1";
    assert_eq!((found.state, found.says.as_str()), (State::May, says));
    assert_eq!(found.remedy, ["sysctl -w net.ipv4.conf.eth1.arp_announce=2"]);
    for name in ["eth1", "all"] {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/arp_announce");
        server.set(&path, "2\n");
        assert_eq!(told(&server, &intent(), "arp-announce").state, State::Ok);
        server.set(&path, "0\n");
    }
    server.set("/proc/sys/net/ipv4/conf/eth1/arp_announce", "many\n");
    assert_eq!(told(&server, &intent(), "arp-announce").state, State::NotAvailable);

    let mut server = Server::healthy();
    server.routes("eth0", "fb0").set("/sys/class/net/fb0/operstate", "up\n");
    let found = told(&server, &intent(), "rp-filter");
    let says = "the host drops packets from the Internet at fb0: its default route is by eth0";
    assert_eq!((found.state, found.says.as_str()), (State::May, says));
    assert_eq!(found.remedy, ["sysctl -w net.ipv4.conf.fb0.rp_filter=2"]);
    // Not of a tap alone, which is no gateway's.
    let mut alone = intent();
    alone.ports.retain(|port| port.kind == "tap");
    assert_eq!(told(&server, &alone, "rp-filter").state, State::Ok);
    // An interface that is not there yet gets the default.
    let mut new = intent();
    new.ports[1].interface = Some("fb1".to_owned());
    let found = told(&server, &new, "rp-filter");
    assert_eq!(found.remedy, ["# once fb1 is there:", "sysctl -w net.ipv4.conf.fb1.rp_filter=2"]);
    // Loose is larger than strict.
    server.set("/proc/sys/net/ipv4/conf/fb0/rp_filter", "2\n");
    assert_eq!(told(&server, &intent(), "rp-filter").state, State::Ok);
    server.set("/proc/sys/net/ipv4/conf/fb0/rp_filter", "x\n");
    assert_eq!(told(&server, &intent(), "rp-filter").state, State::NotAvailable);
}
