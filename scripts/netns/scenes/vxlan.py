"""the kernel's vxlan device as the other end of a VXLAN (examples/netns/vxlan.yaml)"""

import capture
from traffic import echo, iperf, ping
from vxlan_tunnel import ENDS, Tunnel

PORTS = ["af_packet"]


def play(stage, report, kind):
    tunnel = Tunnel(stage, kind, "vxlan.yaml", 1450)
    stage.start("near", "iperf3", "-s", "--forceflush").wait_for("Server listening")
    wire = stage.peer("far", "wire.py", "under", stage.path("under.pcap"))
    for version, far, near in ENDS:
        said = f"IPv{version}"
        least = 28 if version == 4 else 48
        report.of(f"ping from the kernel's end {said}", lambda: ping(stage, "far", near))
        report.of(f"ping to it, as long as may be {said}",
                  lambda: ping(stage, "near", far, "-M", "do", size=1450 - least))
        report.of(f"UDP in fragments {said}", lambda: echo(stage, "near", far, 8080, 4000))
        # A capture of the following packets would be too long.
        wire.end()
        tunnel.downloads(report, version, far, near)
        report.of(f"iperf3 UDP {said}", lambda: iperf(
            stage, "far", near, "-u", "-b", "50M", "-l", 1200, megabytes=max(tunnel.megabytes // 4, 1)))
    report.of("tshark decodes the tunnel",
              lambda: capture.decoded(stage.path("under.pcap"), "02:00:00:00:01:01", "vxlan and icmp"))
    report.balanced(tunnel.forebay)
