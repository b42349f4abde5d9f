"""a router between two networks, the second of which takes shorter packets (examples/router.yaml)"""

from stage import EXAMPLES
from traffic import echo, iperf, ping, random_file, refused_ping, traceroute, upload

PORTS = ["af_packet", "af_xdp"]
HOSTS = {4: ("10.1.0.1", "10.2.0.2"), 6: ("2001:db8:1::1", "2001:db8:2::2")}


def play(stage, report, kind):
    stage.namespace("left")
    stage.forwarder("router")
    stage.namespace("right")
    stage.link(("left", "left"), ("router", "left"))
    stage.link(("router", "right"), ("right", "right"), mtu=1400)
    forebay = stage.forebay(
        "router", EXAMPLES.parent / "router.yaml",
        *(f"ports.{name}={{ {kind}: {{ interface: {name} }} }}" for name in ("left", "right")),
    )
    # The right host announces an MSS of 1460 bytes, so that the path MTU must be discovered.
    for space, number, more in (("left", 1, ""), ("right", 2, " advmss 1460")):
        stage.address(space, space, f"10.{number}.0.2/24", f"2001:db8:{number}::2/64")
        stage.ip(space, f"route add default via 10.{number}.0.1{more}")
        stage.ip(space, f"-6 route add default via 2001:db8:{number}::1{more}")
    stage.peer("right", "server.py", "right", 8080)
    stage.start("right", "iperf3", "-s", "--forceflush").wait_for("Server listening")

    file = random_file(stage, "file", amount(stage))
    for version, (router, host) in HOSTS.items():
        said = f"IPv{version}, {kind}"
        report.of(f"ping {said}", lambda: ping(stage, "left", host))
        report.of(f"ping the router {said}", lambda: ping(stage, "left", router))
        report.of(f"traceroute {said}", lambda: traceroute(stage, "left", host, [router, host]))
        # Packets of 1500 bytes: the left link takes them, and the right link does not.
        size, expected = (1472, "mtu = 1400") if version == 4 else (1452, "mtu=1400")
        report.of(f"error with the path's MTU {said}",
                  lambda: refused_ping(stage, "left", host, expected, "-M", "do", size=size))
        report.of(f"ping in fragments {said}", lambda: ping(stage, "left", host, size=3000))
        report.of(f"UDP in fragments {said}", lambda: echo(stage, "left", host, 8080, 4000))
        flush(stage)
        report.of(f"curl sends, path MTU found {said}", lambda: over_a_narrow_path(stage, host, *file))
        report.of(f"iperf3 TCP {said}", lambda: iperf(stage, "left", host, megabytes=amount(stage)))
        report.of(f"iperf3 TCP back {said}", lambda: iperf(stage, "left", host, "-R", megabytes=amount(stage)))
        report.of(f"iperf3 UDP {said}", lambda: iperf(
            stage, "left", host, "-u", "-b", "50M", "-l", 1200, megabytes=max(amount(stage) // 4, 1)))
    report.balanced(forebay, f"every packet is accounted for, {kind}")


def amount(stage):
    return max(stage.options.megabytes // 5, 1)


def flush(stage):
    """Removes the discovered path MTUs."""
    for family in ("-4", "-6"):
        stage.ip("left", f"{family} route flush cache")


def over_a_narrow_path(stage, host, *file):
    """Checks that the transfer succeeds although its first segments are too long, and that the kernel has learnt the
    path MTU."""
    passed, seen = upload(stage, "left", f"http://[{host}]:8080/" if ":" in host else f"http://{host}:8080/", *file)
    route = stage.ip("left", f"route get {host}").out.split()
    mtu = next((word for before, word in zip(route, route[1:]) if before == "mtu"), "unknown")
    return passed and mtu == "1400", f"{seen}, path MTU {mtu}"
