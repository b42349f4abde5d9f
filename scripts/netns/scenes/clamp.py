"""TCP through a VXLAN whose ends believe in links of 1500 bytes (examples/netns/clamp.yaml): segments fit by mss_clamp"""

from stage import EXAMPLES, Unavailable
from traffic import download, random_file

PORTS = ["af_packet"]

# The largest segment of a connection as the kernel has it; what options take is not part of it.
SEGMENT = "import socket, sys; it = socket.create_connection((sys.argv[1], 8080)); print(it.getsockopt(6, socket.TCP_MAXSEG))"


def segment(stage, space, host, most):
    """The kernel has a connection with segments of no more than `most` bytes."""
    size = int(stage.call(space, "python3", "-c", SEGMENT, host).out)
    return size <= most, f"segments of {size} bytes, allowed are {most}"


def no_oversize(forebay):
    """No packet was too long for the tunnel, and none came in fragments."""
    drops = {name: count for name, count in forebay.drops().items() if name in ("encap.too_long", "decap.fragment")}
    return not any(drops.values()), f"dropped: {drops or 'none'}"


def play(stage, report, kind):
    megabytes = max(stage.options.megabytes // 5, 1)
    stage.namespace("far")
    stage.forwarder("end")
    stage.namespace("near")
    stage.link(("far", "under"), ("end", "under"))
    stage.link(("end", "plain"), ("near", "plain"))
    stage.address("far", "under", "192.0.2.10/24")
    done = stage.ip("far", "link add vx type vxlan id 100 local 192.0.2.10 remote 192.0.2.1 dstport 4789", ok=None)
    if done.code != 0:
        raise Unavailable(f"the kernel has no vxlan device (CONFIG_VXLAN): {done.last_line()}")
    # What is to be cut for a tunnel, the kernel cuts itself: a packet socket would get it uncut (docs/ports.md).
    stage.ip("far", "link set vx gso_max_segs 1", ok=None)
    stage.ip("far", "link set vx up mtu 1500")
    stage.address("far", "vx", "10.1.0.1/24", "2001:db8:1::1/64")
    stage.address("near", "plain", "10.1.0.2/24", "2001:db8:1::2/64")
    file, size, checksum = random_file(stage, "file", megabytes)
    forebay = stage.forebay(
        "end", EXAMPLES / "clamp.yaml",
        *(f"ports.{name}={{ {kind}: {{ interface: {name} }} }}" for name in ("under", "plain")),
    )
    for space in ("far", "near"):
        stage.peer(space, "server.py", space, 8080, file)
    for version, far, near, most in ((4, "10.1.0.1", "10.1.0.2", 1410), (6, "2001:db8:1::1", "2001:db8:1::2", 1390)):
        said = f"IPv{version}"
        at = (lambda host: f"[{host}]") if version == 6 else str
        report.of(f"segments to the kernel's end {said}", lambda: segment(stage, "near", far, most))
        report.of(f"segments from the kernel's end {said}", lambda: segment(stage, "far", near, most))
        report.of(f"curl of {megabytes} MB from it {said}",
                  lambda: download(stage, "near", f"http://{at(far)}:8080/file", size, checksum))
        report.of(f"curl of {megabytes} MB to it {said}",
                  lambda: download(stage, "far", f"http://{at(near)}:8080/file", size, checksum))
    report.of("no segment is too long for the tunnel", lambda: no_oversize(forebay))
    report.balanced(forebay)
