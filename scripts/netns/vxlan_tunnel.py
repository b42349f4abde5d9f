"""The kernel's vxlan device as the other end of a tunnel: the namespaces `far`, `end` and `near` of the VXLAN scenes"""

from stage import EXAMPLES, Unavailable
from traffic import download, random_file

# IP version, the address of the kernel's end, and the address behind Forebay.
ENDS = ((4, "10.1.0.1", "10.1.0.2"), (6, "2001:db8:1::1", "2001:db8:1::2"))


class Tunnel:
    """A VXLAN between the kernel and Forebay, which runs an example and has the interfaces `under` and `plain`."""

    def __init__(self, stage, kind, example, mtu):
        self.stage, self.megabytes = stage, max(stage.options.megabytes // 5, 1)
        stage.namespace("far")
        stage.forwarder("end")
        stage.namespace("near")
        stage.link(("far", "under"), ("end", "under"))
        stage.link(("end", "plain"), ("near", "plain"))
        stage.address("far", "under", "192.0.2.10/24")
        done = stage.ip("far", "link add vx type vxlan id 100 local 192.0.2.10 remote 192.0.2.1 dstport 4789", ok=None)
        if done.code != 0:
            raise Unavailable(f"the kernel has no vxlan device (CONFIG_VXLAN): {done.last_line()}")
        # The kernel segments a frame that is longer than the tunnel's link; a packet socket would get it unsegmented
        # (docs/ports.md).
        stage.ip("far", "link set vx gso_max_segs 1", ok=None)
        stage.ip("far", f"link set vx up mtu {mtu}")
        stage.ip("near", f"link set plain mtu {mtu}")
        stage.address("far", "vx", "10.1.0.1/24", "2001:db8:1::1/64")
        stage.address("near", "plain", "10.1.0.2/24", "2001:db8:1::2/64")
        self.file = random_file(stage, "file", self.megabytes)
        self.forebay = stage.forebay(
            "end", EXAMPLES / example,
            *(f"ports.{name}={{ {kind}: {{ interface: {name} }} }}" for name in ("under", "plain")),
        )
        for space in ("far", "near"):
            stage.peer(space, "server.py", space, 8080, self.file[0])

    def downloads(self, report, version, far, near):
        """Checks that each end can fetch a file from the other."""
        _, size, checksum = self.file
        for space, host, way in (("near", far, "from"), ("far", near, "to")):
            url = f"http://{f'[{host}]' if version == 6 else host}:8080/file"
            report.of(f"curl of {self.megabytes} MB {way} it IPv{version}",
                      lambda: download(self.stage, space, url, size, checksum))
