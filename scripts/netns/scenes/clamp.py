"""TCP through a VXLAN whose ends assume links of 1500 bytes (examples/netns/clamp.yaml): segments fit by mss_clamp"""

from vxlan_tunnel import ENDS, Tunnel

PORTS = ["af_packet"]

# The largest segment of a connection in the kernel's view, without options.
SEGMENT = ("import socket, sys; it = socket.create_connection((sys.argv[1], 8080)); "
           "print(it.getsockopt(6, socket.TCP_MAXSEG))")
# The largest segment in bytes, by IP version.
MOST = {4: 1410, 6: 1390}


def segment(stage, space, host, most):
    """Checks that the kernel has a connection with segments of at most `most` bytes."""
    size = int(stage.call(space, "python3", "-c", SEGMENT, host).out)
    return size <= most, f"segments of {size} bytes, allowed are {most}"


def no_oversize(forebay):
    """Checks that no packet was too long for the tunnel, and none was fragmented."""
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
