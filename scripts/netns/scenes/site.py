"""an ESP tunnel whose other end sends fragments of outer packets, as Linux does (examples/vpn-site.yaml)"""

import shutil

from stage import EXAMPLES, PEERS
from traffic import echo, ping

# It creates its own TAP devices.
PORTS = []
NEAR, FAR = "10.1.0.2", "10.60.0.1"
# Payload sizes in bytes: the longest packet that is not fragmented, the shortest two that are, and some with three or
# more fragments.
SIZES = (1418, 1419, 1420, 3000, 8000)


def play(stage, report, _):
    for space in ("near", "far"):
        stage.namespace(space)
    stage.forwarder("wan")
    # The example and its key are copied to another folder.
    for file in (EXAMPLES.parent / "vpn-site.yaml", EXAMPLES.parent / "vpn.key", PEERS / "esp.yaml"):
        shutil.copy(file, stage.path(file.name))

    def tap(port, space, interface, ip, mac, mtu):
        parameters = f"interface: {interface}, namespace: {stage.named(space)}, address: {ip}, mac: '{mac}', mtu: {mtu}"
        return f"ports.{port}={{ tap: {{ {parameters} }} }}"

    site = stage.forebay("wan", stage.path("vpn-site.yaml"),
                         tap("lan", "near", "fb-lan", "10.1.0.2/24", "02:00:00:00:01:02", 1400),
                         tap("wan", "wan", "fb-wan", "192.0.2.10/24", "02:00:00:00:02:02", 1500))
    stage.ip("wan", "addr flush dev fb-wan")
    peer = stage.forebay("wan", stage.path("esp.yaml"),
                         tap("hosts", "far", "fb-hosts", "10.60.0.1/16", "02:00:00:00:60:02", 8900), name="peer")
    for space, interface, gateway, mac, prefix in (
        ("near", "fb-lan", "10.1.0.1", "02:00:00:00:01:01", "10.60.0.0/16"),
        ("far", "fb-hosts", "10.60.0.254", "02:00:00:00:60:01", "10.1.0.0/24"),
    ):
        stage.ip(space, f"neigh replace {gateway} lladdr {mac} dev {interface}")
        stage.ip(space, f"route replace {prefix} via {gateway}")
    stage.peer("near", "server.py", "near", 8080)

    # Datagrams of any length may be fragmented. Linux would know the tunnel's MTU, which differs from the interface's
    # MTU.
    stage.call("far", "sysctl", "-qw", "net.ipv4.ip_no_pmtu_disc=1")

    report.of("ping from the site", lambda: ping(stage, "near", FAR))
    for size in SIZES:
        report.of(f"ping of {size} bytes from the peer's side",
                  lambda: ping(stage, "far", NEAR, "-M", "dont", size=size))
    report.of("UDP of 3000 bytes from the peer's side", lambda: echo(stage, "far", NEAR, 8080, 3000))
    report.balanced(peer, "every packet is accounted for, peer")
    ended = report.balanced(site, "every packet is accounted for, site")["packets"]
    whole, lost = (sum(count for name, count in ended[fate].items() if name.startswith("whole."))
                   for fate in ("consumed", "dropped"))
    report.check("outer packets were fragmented, none was lost", whole > 0 and not lost,
                 f"{whole} reassembled, {lost} dropped")
