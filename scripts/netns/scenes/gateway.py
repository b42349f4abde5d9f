"""a firewall and translator between an inside network and the world (examples/netns/gateway.yaml)"""

from stage import EXAMPLES
from traffic import (curl, download, echo, iperf, no_connection, ping, random_file, refused_ping, traceroute, upload)

PORTS = ["af_packet"]
HOPS = {4: ["10.1.0.1", "192.0.2.254", "198.51.100.2"], 6: ["2001:db8:1::1", "2001:db8:2::fe", "2001:db8:6::2"]}


def play(stage, report, kind):
    megabytes = stage.options.megabytes
    file, size, checksum = random_file(stage, "file", megabytes)
    stage.namespace("inside")
    stage.forwarder("gateway")
    # A router behind the gateway's outside link, with a smaller MTU on the router's other link.
    stage.router("isp")
    stage.namespace("server")
    stage.link(("inside", "lan"), ("gateway", "lan"))
    stage.link(("gateway", "wan"), ("isp", "wan"))
    stage.link(("isp", "far"), ("server", "far"), mtu=1300)
    stage.address("inside", "lan", "10.1.0.2/24", "2001:db8:1::2/64")
    stage.ip("inside", "route add default via 10.1.0.1")
    stage.ip("inside", "-6 route add default via 2001:db8:1::1")
    stage.address("isp", "wan", "192.0.2.254/24", "2001:db8:2::fe/64")
    stage.ip("isp", "-6 route add 2001:db8:1::/64 via 2001:db8:2::1")
    stage.address("isp", "far", "198.51.100.1/24", "2001:db8:6::1/64")
    stage.address("server", "far", "198.51.100.2/24", "2001:db8:6::2/64")
    # It announces an MSS of 1460 bytes, so that the path MTU must be discovered.
    stage.ip("server", "route add default via 198.51.100.1 advmss 1460")
    stage.ip("server", "-6 route add default via 2001:db8:6::1 advmss 1460")
    forebay = stage.forebay(
        "gateway", EXAMPLES / "gateway.yaml",
        *(f"ports.{name}={{ {kind}: {{ interface: {name} }} }}" for name in ("lan", "wan")),
    )
    stage.peer("server", "server.py", "server", 80, file)
    for port in (8080, 8081):
        stage.peer("inside", "server.py", "inside", port, file)
    stage.start("server", "iperf3", "-s", "--forceflush").wait_for("Server listening")

    for version, hops in HOPS.items():
        host = hops[-1]
        at = f"[{host}]" if version == 6 else host
        said = f"IPv{version}"
        report.of(f"ping through {said}", lambda: ping(stage, "inside", host))
        report.of(f"traceroute, errors come back {said}", lambda: traceroute(stage, "inside", host, hops))
        size_, expected = (1472, "mtu = 1300") if version == 4 else (1452, "mtu=1300")
        report.of(f"error with a far link's MTU {said}",
                  lambda: refused_ping(stage, "inside", host, expected, "-M", "do", size=size_))
        stage.ip("inside", f"-{version} route flush cache")
        report.of(f"curl of {megabytes} MB {said}",
                  lambda: download(stage, "inside", f"http://{at}/file", size, checksum))
        report.of(f"curl sends, path MTU found {said}",
                  lambda: upload(stage, "inside", f"http://{at}/", file, size, checksum))
        report.of(f"UDP {said}", lambda: echo(stage, "inside", host, 80, 500))
        if version == 4:
            report.of(f"UDP in fragments {said}", lambda: echo(stage, "inside", host, 80, 1800))
        else:
            report.missing(f"UDP in fragments {said}", "packets that are reassembled for the firewall are not "
                                                       "fragmented again (docs/fragments.md)")
        report.of(f"iperf3 UDP {said}", lambda: iperf(
            stage, "inside", host, "-u", "-b", "50M", "-l", 1200, megabytes=max(megabytes // 20, 1)))
    report.of("curl to the server inside", lambda: (
        (name := curl(stage, "server", "http://192.0.2.1/").strip()) == "inside", f"'{name}' answers at 192.0.2.1:80"))
    report.of(f"curl of {megabytes} MB from inside",
              lambda: download(stage, "server", "http://192.0.2.1/file", size, checksum))
    for what, url in (
        ("a port that is not forwarded is closed", "http://192.0.2.1:8080/"),
        ("a port that the firewall denies is closed", "http://192.0.2.1:81/"),
        ("inside addresses are closed", "http://[2001:db8:1::2]:8080/"),
    ):
        report.of(what, lambda: no_connection(stage, "server", url))
    report.of("refused packets are counted", lambda: refusals(forebay))
    report.balanced(forebay)


def refusals(forebay):
    drops = forebay.drops()
    seen = {reason: drops.get(reason, 0) for reason in ("translate_back.no_session", "may_enter.denied")}
    return all(seen.values()), ", ".join(f"{reason} {count}" for reason, count in seen.items())
