"""an ESP tunnel between two Forebays, and what can be seen on the way (examples/netns/vpn-one.yaml, vpn-other.yaml)"""

import capture
from stage import EXAMPLES
from traffic import download, echo, iperf, ping, random_file, refused_ping, traceroute

PORTS = ["af_packet"]
HOPS = {4: ["10.1.0.1", "10.2.0.1", "10.2.0.2"], 6: ["2001:db8:1::1", "2001:db8:2::1", "2001:db8:2::2"]}
PAYLOAD = b"Forebay!"
SITES = (("one", 1), ("other", 2))


def play(stage, report, kind):
    megabytes = stage.options.megabytes
    file, size, checksum = random_file(stage, "file", megabytes)
    # The network between the sites is a bridge, on which an attacker could read all packets. The scene captures them.
    stage.bridge("net", "wire")
    gates = []
    for site, number in SITES:
        stage.namespace(f"site-{site}")
        stage.forwarder(f"gate-{site}")
        stage.link((f"site-{site}", "lan"), (f"gate-{site}", "lan"))
        stage.link((f"gate-{site}", "wan"), ("net", f"to-{site}"))
        stage.ip("net", f"link set to-{site} master wire")
        stage.address(f"site-{site}", "lan", f"10.{number}.0.2/24", f"2001:db8:{number}::2/64")
        stage.ip(f"site-{site}", f"route add default via 10.{number}.0.1")
        stage.ip(f"site-{site}", f"-6 route add default via 2001:db8:{number}::1")
        gates.append(stage.forebay(
            f"gate-{site}", EXAMPLES / f"vpn-{site}.yaml",
            *(f"ports.{name}={{ {kind}: {{ interface: {name} }} }}" for name in ("lan", "wan")),
        ))
    stage.peer("site-other", "server.py", "other", 80, file)
    stage.start("site-other", "iperf3", "-s", "--forceflush").wait_for("Server listening")
    seen = stage.path("wire.pcap")
    wire = stage.peer("net", "wire.py", "to-one", seen)

    for version, hops in HOPS.items():
        host = hops[-1]
        said = f"IPv{version}"
        least = 28 if version == 4 else 48
        report.of(f"ping through the tunnel {said}", lambda: ping(stage, "site-one", host, "-p", PAYLOAD.hex()))
        report.of(f"ping, as long as it may be {said}",
                  lambda: ping(stage, "site-one", host, "-M", "do", size=1446 - least))
        report.of(f"error with the tunnel's MTU {said}", lambda: refused_ping(
            stage, "site-one", host, "mtu = 1446" if version == 4 else "mtu=1446", "-M", "do", size=1500 - least))
        stage.ip("site-one", f"-{version} route flush cache")
        report.of(f"traceroute {said}", lambda: traceroute(stage, "site-one", host, hops))
        report.of(f"UDP in fragments {said}", lambda: echo(stage, "site-one", host, 80, 4000))
        report.of(f"iperf3 UDP {said}", lambda: iperf(
            stage, "site-one", host, "-u", "-b", "50M", "-l", 1200, megabytes=max(megabytes // 20, 1)))
    # A capture of the following traffic would have hundreds of megabytes.
    wire.end()
    count = capture.kinds(seen)
    report.check("only ESP on the wire", set(count) == {"ESP", "ARP"}, capture.listed(count))
    clear = sum(PAYLOAD * 3 in frame for frame in capture.frames(seen))
    report.check("no plain payload on the wire", clear == 0,
                 f"'{PAYLOAD.decode()}', which pings carry, is in {clear} frames")
    report.of("tshark decrypts it",
              lambda: capture.decoded(seen, "02:00:00:00:01:02", "icmp and esp", *security_associations()))
    for version, at in ((4, "10.2.0.2"), (6, "[2001:db8:2::2]")):
        report.of(f"curl of {megabytes} MB IPv{version}",
                  lambda: download(stage, "site-one", f"http://{at}/file", size, checksum))
        report.of(f"iperf3 TCP IPv{version}",
                  lambda: iperf(stage, "site-one", at.strip("[]"), megabytes=max(megabytes // 5, 1)))
    for (site, _), gate in zip(SITES, gates):
        report.balanced(gate, f"every packet is accounted for, site {site}")


def security_associations():
    """Returns the keys as options of tshark."""
    words = ["-o", "esp.enable_encryption_decode:TRUE"]
    for spi, name in (("0x00001001", "there"), ("0x00002001", "back")):
        key = (EXAMPLES / f"vpn-{name}.key").read_text().split("\n")[1]
        words += ["-o", (f'uat:esp_sa:"IPv4","*","*","{spi}","AES-GCM with 16 octet ICV [RFC4106]",'
                         f'"0x{key}","NULL","","32-bit"')]
    return words
