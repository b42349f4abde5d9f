"""the kernel's vxlan device as the other end of a VXLAN (examples/netns/vxlan.yaml)"""

import capture
from stage import EXAMPLES, Unavailable
from traffic import download, echo, iperf, ping, random_file

PORTS = ["af_packet"]


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
    stage.ip("far", "link set vx up mtu 1450")
    stage.ip("near", "link set plain mtu 1450")
    stage.address("far", "vx", "10.1.0.1/24", "2001:db8:1::1/64")
    stage.address("near", "plain", "10.1.0.2/24", "2001:db8:1::2/64")
    file, size, checksum = random_file(stage, "file", megabytes)
    forebay = stage.forebay(
        "end", EXAMPLES / "vxlan.yaml",
        *(f"ports.{name}={{ {kind}: {{ interface: {name} }} }}" for name in ("under", "plain")),
    )
    for space in ("far", "near"):
        stage.peer(space, "server.py", space, 8080, file)
    stage.start("near", "iperf3", "-s", "--forceflush").wait_for("Server listening")
    wire = stage.peer("far", "wire.py", "under", stage.path("under.pcap"))
    for version, far, near in ((4, "10.1.0.1", "10.1.0.2"), (6, "2001:db8:1::1", "2001:db8:1::2")):
        said = f"IPv{version}"
        at = (lambda host: f"[{host}]") if version == 6 else str
        least = 28 if version == 4 else 48
        report.of(f"ping from the kernel's end {said}", lambda: ping(stage, "far", near))
        report.of(f"ping to it, as long as may be {said}", lambda: ping(stage, "near", far, "-M", "do", size=1450 - least))
        report.of(f"UDP in fragments {said}", lambda: echo(stage, "near", far, 8080, 4000))
        # What follows would be a long capture.
        wire.end()
        report.of(f"curl of {megabytes} MB from it {said}",
                  lambda: download(stage, "near", f"http://{at(far)}:8080/file", size, checksum))
        report.of(f"curl of {megabytes} MB to it {said}",
                  lambda: download(stage, "far", f"http://{at(near)}:8080/file", size, checksum))
        report.of(f"iperf3 UDP {said}",
                  lambda: iperf(stage, "far", near, "-u", "-b", "50M", "-l", 1200, megabytes=max(megabytes // 4, 1)))
    report.of("tshark decodes the tunnel", lambda: capture.decoded(stage.path("under.pcap"), "02:00:00:00:01:01", "vxlan and icmp"))
    report.balanced(forebay)
