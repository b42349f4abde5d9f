"""a user plane function between a base station and a data network (examples/netns/upf.yaml)"""

import json
import re
import signal
import sys

import capture
from stage import EXAMPLES, PEERS, Broken
from traffic import download, echo, iperf, iperf_end, ping, random_file, refused_ping, traceroute

PORTS = ["af_packet"]
USERS = {
    "10.60.0.1": (0x1001, 0x2001), "2001:db8:60:1::": (0x1001, 0x2001), "10.60.0.2": (0x1002, 0x2002),
    "2001:db8:60:2::": (0x1002, 0x2002), "10.60.0.3": (0x1003, 0x2003),
}


def play(stage, report, kind):
    megabytes = stage.options.megabytes
    file, size, checksum = random_file(stage, "file", megabytes)
    stage.namespace("gnb")
    stage.forwarder("upf")
    stage.namespace("server")
    stage.link(("gnb", "n3"), ("upf", "n3"))
    stage.link(("upf", "n6"), ("server", "n6"))
    stage.address("gnb", "n3", "192.0.2.10/24")
    stage.address("server", "n6", "198.51.100.2/24", "2001:db8:6::2/64")
    stage.ip("server", "route add 10.60.0.0/16 via 198.51.100.1")
    stage.ip("server", "-6 route add 2001:db8:60::/48 via 2001:db8:6::1")
    forebay = stage.forebay(
        "upf", EXAMPLES / "upf.yaml",
        *(f"ports.{name}={{ {kind}: {{ interface: {name} }} }}" for name in ("n3", "n6")),
    )
    wire = stage.peer("gnb", "wire.py", "n3", stage.path("n3.pcap"))
    tunnels = [f"{user}={teid}:{peer}" for user, (teid, peer) in USERS.items()]
    gnb = stage.peer("gnb", "gtpu.py", "ue", "192.0.2.10", "192.0.2.1", *tunnels)
    stage.ip("gnb", "link set ue up mtu 1456")
    stage.address("gnb", "ue", "10.60.0.1/32", "10.60.0.2/32", "10.60.0.3/32",
                  "2001:db8:60:1::1/128", "2001:db8:60:2::1/128")
    stage.ip("gnb", "route add 198.51.100.0/24 dev ue src 10.60.0.1")
    stage.ip("gnb", "-6 route add 2001:db8:6::/64 dev ue src 2001:db8:60:1::1")
    stage.peer("server", "server.py", "server", 8080, file)
    stage.start("server", "iperf3", "-s", "--forceflush").wait_for("Server listening")

    for version, host, router, users in (
        (4, "198.51.100.2", "198.51.100.1", ("10.60.0.1", "10.60.0.2")),
        (6, "2001:db8:6::2", "2001:db8:6::1", ("2001:db8:60:1::1", "2001:db8:60:2::1")),
    ):
        said = f"IPv{version}"
        for number, user in enumerate(users, 1):
            report.of(f"ping by user {number} {said}", lambda: ping(stage, "gnb", host, "-I", user))
        report.of(f"traceroute by a user {said}", lambda: traceroute(stage, "gnb", host, [router, host]))
        report.of(f"a server gets an error with the tunnel's MTU {said}", lambda: refused_ping(
            stage, "server", users[0], "mtu = 1456" if version == 4 else "mtu=1456", "-M", "do",
            size=1500 - (28 if version == 4 else 48)))
        report.of(f"UDP by a user {said}", lambda: echo(stage, "gnb", host, 8080, 1000))
    stage.ip("gnb", "link set ue mtu 4000")
    for version, host, users in (
        (4, "198.51.100.2", ("10.60.0.1", "10.60.0.2")),
        (6, "2001:db8:6::2", ("2001:db8:60:1::1",)),
    ):
        # The tunnel adds 44 bytes, and the data network's MTU is 1500. Shorter packets cause only outer fragments,
        # longer ones also inner fragments.
        headers = 28 if version == 4 else 48
        for inner in (1456, 1457, 1500) + ((1501, 3500) if version == 4 else ()):
            report.of(f"ping of {inner} bytes with its headers by a user IPv{version}", lambda: ping(
                stage, "gnb", host, "-I", users[-1], "-M", "dont", size=inner - headers))
    report.of("a user gets an error with the data network's MTU", lambda: refused_ping(
        stage, "gnb", "198.51.100.2", "mtu = 1500", "-I", "10.60.0.1", "-M", "do", size=2000))
    stage.ip("gnb", "link set ue mtu 1456")
    report.of("ping by a user without a session", lambda: unanswered(stage, "10.60.0.3"))
    forebay.ask("table", "up.sessions", "add 10.60.0.3 teid=0x1003 peer=192.0.2.10 peer-teid=0x2003 qfi=7")
    report.of("the same with one that `table` has added", lambda: ping(stage, "gnb", "198.51.100.2", "-I", "10.60.0.3"))
    wire.end()
    report.of("tshark decodes the tunnels",
              lambda: capture.decoded(stage.path("n3.pcap"), "02:00:00:00:03:01", "gtp and icmp"))
    for version, at in ((4, "198.51.100.2"), (6, "[2001:db8:6::2]")):
        report.of(f"curl of {megabytes} MB by a user IPv{version}",
                  lambda: download(stage, "gnb", f"http://{at}:8080/file", size, checksum))
    report.of("iperf3 TCP by a user", lambda: iperf(stage, "gnb", "198.51.100.2", megabytes=max(megabytes // 5, 1)))
    report.of("iperf3 UDP by a user", lambda: iperf(
        stage, "gnb", "198.51.100.2", "-u", "-b", "20M", "-l", 1200, megabytes=max(megabytes // 20, 1)))
    report.of("a user is held to its limit", lambda: limited(stage, forebay))
    report.of("`show table` has each user's packets", lambda: used(forebay))
    ended = forebay.ask("table", "up.sessions", "remove 10.60.0.3").out
    counts = forebay.ask("show", "table", "up.ended").out
    report.check("the usage of a session is kept when it ends", "10.60.0.3 rule=1" in counts, counts or ended)
    gnb.end(signal.SIGTERM)
    report.of("the base station understood all packets", lambda: understood(gnb))
    kernel_gtp(stage, report, (file, size, checksum))
    made = report.balanced(forebay)["packets"]["created"]
    indications = {name: count for name, count in made.items() if name.endswith(".error_indication")}
    # One error indication for a tunnel that `decap` does not know, and two for pings in a tunnel that `decap` knows but
    # that has no session.
    report.check("error indications were sent",
                 indications == {"decap.error_indication": 1, "up.error_indication": 2}, indications)


def unanswered(stage, user):
    done = stage.attempt("gnb", "ping", "-n", "-q", "-c", 2, "-i", "0.02", "-W", 1, "-I", user, "198.51.100.2")
    return "100% packet loss" in done.out, done.last_line()


def limited(stage, forebay):
    """Checks that the second user, who sends 40 Mbit/s, gets at most 8 Mbit/s plus the burst."""
    before = forebay.drops().get("up.over_rate", 0)
    end = iperf_end(stage, "gnb", "198.51.100.2", "-u", "-b", "40M", "-l", 1200, "-B", "10.60.0.2", megabytes=2)
    dropped = forebay.drops().get("up.over_rate", 0) - before
    sent = end["sum"]["packets"]
    # At this rate, the transfer takes 420 ms. The limit of 8 Mbit/s is a fifth of the rate, and the bytes of 100 ms may
    # pass at once. On a busy machine, more may pass.
    least = 0 if stage.options.short else sent // 10
    return least <= dropped < sent, f"{dropped} of {sent} datagrams at 40 Mbit/s are above 8 Mbit/s (up.over_rate)"


def used(forebay):
    """Checks the counts of users and rules, up and down."""
    there = {}
    # One user per line, `10.60.0.1,2001:db8:60:1::/64` if it has both types of addresses, with all its rules.
    for line in forebay.ask("show", "table", "up.usage").out.splitlines():
        user = re.split("[, ]", line)[0]
        for rule, up, down in re.findall(r"rule=(\S+) up=(\d+)/\d+B down=(\d+)/", line):
            there[user, rule] = int(up), int(down)
    wanted = [(f"10.60.0.{user}", rule) for user, rule in ((1, "1"), (1, "2"), (1, "3"), (2, "1"), (3, "1"))]
    right = all(min(there.get(key, (0, 0))) > 0 for key in wanted)
    up, down = there.get(("10.60.0.1", "2"), (0, 0))
    return right, f"10.60.0.1's TCP: {up} packets up, {down} down"


def understood(gnb):
    lines = [line for line in gnb.said().splitlines() if line.startswith("{")]
    if not lines:
        raise Broken("the base station printed no result")
    seen = json.loads(lines[-1])
    flows = set(seen["flows"])
    right = not seen["wrong"] and seen["echo"] == 1 and seen["errors"] >= 3 and {"9", "7"} <= flows <= {"9", "7", "5"}
    listed = (f"{seen['up']} up, {seen['down']} down, QoS flows {', '.join(sorted(flows))}, "
              f"{seen['echo']} echo response, ")
    return right, (listed + f"{seen['errors']} error indications"
                   + (f", wrong: {seen['wrong'][0]}" if seen["wrong"] else ""))


def kernel_gtp(stage, report, file):
    """Uses the kernel's GTP-U device as the base station, if the kernel has one."""
    what = "the kernel's gtp device"
    done = stage.ip("gnb", "link add gtp0 type gtp role sgsn", ok=None)
    if done.code != 0:
        return report.missing(
            what, f"the kernel has none (CONFIG_GTP), or iproute2 does not know it: {done.last_line()}")
    # If a user has addresses of both types, the kernel needs two tunnels. The UPF may use one tunnel.
    tunnels = [f"{user}={teid}:{peer}" for user, (teid, peer) in USERS.items()
               if user in ("10.60.0.1", "2001:db8:60:2::")]
    done = stage.attempt("gnb", sys.executable, PEERS / "kernel_gtp.py", "gtp0", "192.0.2.1", *tunnels)
    if done.code != 0:
        return report.check(what, False, done.last_line())
    stage.ip("gnb", "link set gtp0 up mtu 1456")
    stage.address("gnb", "gtp0", "10.60.0.1/32", "2001:db8:60:2::1/128")
    stage.ip("gnb", "route replace 198.51.100.0/24 dev gtp0 src 10.60.0.1")
    stage.ip("gnb", "-6 route replace 2001:db8:6::/64 dev gtp0 src 2001:db8:60:2::1")
    _, size, checksum = file
    for version, host in ((4, "198.51.100.2"), (6, "2001:db8:6::2")):
        at = f"[{host}]" if version == 6 else host
        report.of(f"{what}: ping IPv{version}", lambda: ping(stage, "gnb", host))
        report.of(f"{what}: UDP IPv{version}", lambda: echo(stage, "gnb", host, 8080, 1000))
        report.of(f"{what}: curl IPv{version}",
                  lambda: download(stage, "gnb", f"http://{at}:8080/file", size, checksum))
