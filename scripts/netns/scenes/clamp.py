"""TCP through a VXLAN whose ends believe in links of 1500 bytes (examples/netns/clamp.yaml): segments fit by mss_clamp"""

from vxlan_tunnel import ENDS, Tunnel

PORTS = ["af_packet"]

# The largest segment of a connection as the kernel has it; what options take is not part of it.
SEGMENT = "import socket, sys; it = socket.create_connection((sys.argv[1], 8080)); print(it.getsockopt(6, socket.TCP_MAXSEG))"
# The most bytes of a segment, by IP version.
MOST = {4: 1410, 6: 1390}


def segment(stage, space, host, most):
    """The kernel has a connection with segments of no more than `most` bytes."""
    size = int(stage.call(space, "python3", "-c", SEGMENT, host).out)
    return size <= most, f"segments of {size} bytes, allowed are {most}"


def no_oversize(forebay):
    """No packet was too long for the tunnel, and none came in fragments."""
    drops = {name: count for name, count in forebay.drops().items() if name in ("encap.too_long", "decap.fragment")}
    return not any(drops.values()), f"dropped: {drops or 'none'}"


def play(stage, report, kind):
    tunnel = Tunnel(stage, kind, "clamp.yaml", 1500)
    for version, far, near in ENDS:
        most = MOST[version]
        report.of(f"segments to the kernel's end IPv{version}", lambda: segment(stage, "near", far, most))
        report.of(f"segments from the kernel's end IPv{version}", lambda: segment(stage, "far", near, most))
        tunnel.downloads(report, version, far, near)
    report.of("no segment is too long for the tunnel", lambda: no_oversize(tunnel.forebay))
    report.balanced(tunnel.forebay)
