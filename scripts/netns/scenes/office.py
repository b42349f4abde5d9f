"""an office's Internet gateway with the host's DHCP, DNS and router advertisements (examples/office-gateway.yaml)"""

import re

from stage import EXAMPLES, ROOT
from traffic import curl, no_connection, ping, random_file, refused_ping, upload

PORTS = ["af_packet"]
PAGE = ROOT / "docs" / "office-gateway.md"
NAME = "www.example.test"
SERVER = {4: "198.51.100.53", 6: "2001:db8:6::2"}
SCRIPT = """#!/bin/sh
[ "$1" = bound ] || exit 0
ip addr add "$ip/$mask" dev "$interface"
ip route add default via "$router"
echo "lease $ip router $router dns $dns"
"""


def play(stage, report, kind):
    file, size, checksum = random_file(stage, "file", 1)
    # The host: Forebay runs next to its network stack.
    for space in ("client", "gateway", "server"):
        stage.namespace(space)
    stage.router("isp")
    # The client requests an address only when the DHCP server is ready.
    stage.call("client", "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1", "net.ipv6.conf.default.accept_ra=1")
    stage.link(("client", "lan"), ("gateway", "enp2s0"))
    stage.ip("client", "link set lan address 02:00:00:00:00:0a")
    stage.link(("gateway", "enp1s0"), ("isp", "wan"))
    stage.link(("isp", "far"), ("server", "far"), mtu=1300)
    stage.address("isp", "wan", "203.0.113.1/24", "2001:db8:2::1/64")
    stage.ip("isp", "-6 route add 2001:db8:1::/64 via 2001:db8:2::2")
    stage.address("isp", "far", "198.51.100.1/24", "2001:db8:6::1/64")
    stage.address("server", "far", "198.51.100.53/24", "2001:db8:6::2/64")
    stage.ip("server", "route add default via 198.51.100.1 advmss 1460")
    stage.ip("server", "-6 route add default via 2001:db8:6::1 advmss 1460")
    stage.start("server", "dnsmasq", *resolver(stage, "server"), "--no-resolv", f"--address=/{NAME}/{SERVER[4]}",
                f"--address=/{NAME}/{SERVER[6]}").wait_for("started")
    stage.peer("server", "server.py", "server", 80, file)

    # The commands of the documentation page, in its order.
    page = PAGE.read_text()
    commands = [block for block in re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S) if "forebay" not in block]
    stage.call("gateway", "sh", "-ec", "".join(commands))
    forebay = stage.forebay("gateway", EXAMPLES.parent / "office-gateway.yaml",
                            *(f"ports.{name}.{kind}={{ interface: {interface}, host: false }}"
                              for name, interface in (("lan", "enp2s0"), ("wan", "enp1s0"))))
    conf = stage.path("office.conf")
    conf.write_text(re.search(r"^```ini\n(.*?)^```", page, re.M | re.S).group(1))
    stage.start("gateway", "dnsmasq", *resolver(stage, "gateway"), f"--conf-file={conf}",
                "--no-ping").wait_for("started")
    stage.peer("gateway", "server.py", "host", 22)

    report.of("DHCP: an address, router and DNS", lambda: lease(stage))
    report.of("IPv6: an address by the host's advertisement", lambda: advertised(stage))
    stage.peer("client", "server.py", "inside", 443, file)
    resolv = stage.path("resolv.conf")
    resolv.write_text("nameserver 192.168.1.1\n")
    report.of("DNS at the gateway's address", lambda: resolved(stage, "192.168.1.1"))
    report.of("DNS at the gateway's IPv6 address", lambda: resolved(stage, "2001:db8:1::1"))
    for version, host in SERVER.items():
        at = f"[{host}]" if version == 6 else host
        said = f"IPv{version}"
        report.of(f"ping out {said}", lambda: ping(stage, "client", host))
        report.of(f"curl out by name {said}", lambda: by_name(stage, resolv, version))
        long, expected = (1472, "mtu = 1300") if version == 4 else (1452, "mtu=1300")
        report.of(f"error with a far link's MTU {said}",
                  lambda: refused_ping(stage, "client", host, expected, "-M", "do", size=long))
        stage.ip("client", f"-{version} route flush cache")
        report.of(f"curl sends, path MTU found {said}",
                  lambda: upload(stage, "client", f"http://{at}/", file, size, checksum))
        report.of(f"the host's own ping out {said}", lambda: ping(stage, "gateway", host))
        report.of(f"the host's own curl out {said}", lambda: answers(stage, "gateway", f"http://{at}/", "server"))
    report.of("the host's ping to a machine of the office", lambda: ping(stage, "gateway", "192.168.1.10"))
    report.of("a service of the host, from the office",
              lambda: answers(stage, "client", "http://192.168.1.1:22/", "host"))
    report.of("the same over IPv6", lambda: answers(stage, "client", "http://[2001:db8:1::1]:22/", "host"))
    report.of("ping of the gateway's address", lambda: ping(stage, "client", "192.168.1.1"))
    report.of("the port forward, from the Internet",
              lambda: answers(stage, "server", "http://203.0.113.2:443/", "inside"))
    for what, url in (
        ("the host's DNS", "http://203.0.113.2:53/"),
        ("the host's ssh", "http://203.0.113.2:22/"),
        ("the host's DNS, IPv6", "http://[2001:db8:1::1]:53/"),
        ("the office, IPv6", f"http://[{client_address(stage)}]:443/"),
    ):
        report.of(f"closed from the Internet: {what}", lambda: no_connection(stage, "server", url, within=1))
    report.of("refused packets are counted, and no packet is malformed", lambda: refusals(forebay))
    report.balanced(forebay)


def resolver(stage, space):
    """Returns options for one of several dnsmasq on a machine, without files outside the stage."""
    return ("--keep-in-foreground", "--user=root", "--pid-file=", "--log-facility=-", "--conf-file=/dev/null"
            if space == "server" else "--log-dhcp", f"--dhcp-leasefile={stage.path(space + '.leases')}")


def lease(stage):
    script = stage.path("leased")
    script.write_text(SCRIPT)
    script.chmod(0o755)
    done = stage.attempt("client", "busybox", "udhcpc", "-i", "lan", "-f", "-q", "-n", "-t", 10, "-T", 3, "-s", script,
                         timeout=60)
    lease = done.first(r"^lease (.*)", "")
    return lease == "192.168.1.10 router 192.168.1.1 dns 192.168.1.1", lease or done.last_line()


def client_address(stage):
    """Returns the global IPv6 address of the client."""
    found = re.search(r"inet6 (2001:db8:1:\S+)/64", stage.ip("client", "-6 addr show dev lan scope global").out)
    return found.group(1) if found else None


def advertised(stage):
    stage.call("client", "sysctl", "-qw", "net.ipv6.conf.lan.disable_ipv6=0")
    stage.until(lambda: client_address(stage) and "default" in stage.ip("client", "-6 route").out,
                "an advertisement comes")
    router = re.search(r"default via (\S+)", stage.ip("client", "-6 route").out).group(1)
    # The link-local address of 02:00:00:00:01:01, which is Forebay's.
    return router == "fe80::ff:fe00:101", f"{client_address(stage)}, the router is {router}"


def resolved(stage, server):
    done = stage.attempt("client", "busybox", "nslookup", NAME, server)
    return (all(address in done.out for address in SERVER.values()),
            " ".join(re.findall(r"Address: (\S+)", done.out)) or done.last_line())


def by_name(stage, resolv, version):
    words = (f"mount --bind {resolv} /etc/resolv.conf && "
             f"exec curl -sS -{version} --noproxy '*' --connect-timeout 10 http://{NAME}/")
    done = stage.attempt("client", "unshare", "-m", "sh", "-c", words)
    return done.out.strip() == "server", f"'{done.out.strip() or done.last_line()}' answers at {NAME}"


def answers(stage, space, url, name):
    answer = curl(stage, space, url).strip()
    return answer == name, f"'{answer}' answers"


def refusals(forebay):
    drops = forebay.drops()
    seen = {reason: drops.get(reason, 0) for reason in ("translate_back.no_session", "may_enter.denied")}
    malformed = {reason: count for reason, count in drops.items() if "malformed" in reason and count}
    listed = ", ".join(f"{reason} {count}" for reason, count in (seen | malformed).items())
    return all(seen.values()) and not malformed, listed
