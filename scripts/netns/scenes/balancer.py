"""a load balancer over three servers, one of which is drained and stopped (examples/netns/balancer.yaml)"""

import json
import signal
import time
from collections import Counter

from stage import EXAMPLES, strike
from traffic import curl, digest, echo, random_file

PORTS = ["af_packet"]
SERVERS = ["one", "two", "three"]
SERVICE = "http://192.0.2.10"
REQUESTS = 60


def play(stage, report, kind):
    megabytes = max(stage.options.megabytes // 5, 1)
    file, size, checksum = random_file(stage, "file", megabytes)
    stage.namespace("client")
    stage.forwarder("balancer")
    stage.bridge("net", "servers")
    stage.link(("client", "front"), ("balancer", "front"))
    stage.link(("balancer", "back"), ("net", "balancer"))
    stage.ip("net", "link set balancer master servers")
    stage.address("client", "front", "198.51.100.2/24")
    stage.ip("client", "route add default via 198.51.100.1")
    running = {}
    for number, name in enumerate(SERVERS, 11):
        stage.namespace(name)
        stage.link((name, "eth"), ("net", name))
        stage.ip("net", f"link set {name} master servers")
        stage.address(name, "eth", f"10.2.0.{number}/24")
        stage.ip(name, "route add default via 10.2.0.1")
        running[name] = stage.peer(name, "server.py", name, 8080, file)
    yaml = stage.path("balancer.yaml")
    text = (EXAMPLES / "balancer.yaml").read_text()
    yaml.write_text(text)
    forebay = stage.forebay(
        "balancer", yaml, *(f"ports.{name}={{ {kind}: {{ interface: {name} }} }}" for name in ("front", "back")),
    )

    report.of(f"{REQUESTS} connections are spread", lambda: spread(stage, SERVERS))
    report.of("a connection has one server", lambda: one_connection(stage))
    report.of("UDP is echoed", lambda: echo(stage, "client", "192.0.2.10", 80, 500, count=20))
    report.of("a download is complete and correct", lambda: is_whole(stage.path("whole"), checksum, lambda path: curl(
        stage, "client", f"{SERVICE}/file", "-o", path)))

    # A download whose server is then drained.
    before = settled(forebay)
    slow = stage.peer("client", "slow_client.py", "192.0.2.10", 80)
    backend = server_of_more(before, forebay)
    drained = SERVERS[int(backend[-2:]) - 11]
    yaml.write_text(text.replace(f"{backend}, port: 8080", f"{backend}, port: 8080, drain: true"))
    said = forebay.ask("reload").out.splitlines()[0]
    rest = [name for name in SERVERS if name != drained]
    report.of(f"'{drained}' is drained, connections go elsewhere", lambda: with_more(spread(stage, rest), said))
    before = settled(forebay)
    strike(slow.popen, signal.SIGUSR1)
    slow.wait_for("quarter 2", timeout=60)
    more = settled(forebay)[backend] - before[backend]
    report.check("the download from it continues meanwhile", more > 0, f"{more} packets to it")
    strike(slow.popen, signal.SIGUSR1)
    slow.wait_for("quarter 3", timeout=60)
    strike(slow.popen, signal.SIGUSR1)
    slow.wait_for("got", timeout=60)
    report.check("the download is complete", f"got {size} {checksum}" in slow.said(),
                 slow.said().splitlines()[-1][:40] + "…")
    report.of("then it has no session", lambda: is_left(forebay, backend))

    # Another server is removed completely.
    gone = rest[0]
    at = 11 + SERVERS.index(gone)
    running[gone].end()
    yaml.write_text("\n".join(
        line.replace(f"{{ address: 10.2.0.{at}, port: 8080 }}, ", "")
            .replace(f", {{ address: 10.2.0.{at}, port: 8080 }}", "")
        for line in text.splitlines() if line.strip() != f"- {{ address: 10.2.0.{at}, port: 8080 }}"
    ))
    said = forebay.ask("reload").out.splitlines()[0]
    report.of(f"'{gone}' is removed, '{drained}' is back",
              lambda: with_more(spread(stage, [name for name in SERVERS if name != gone]), said))
    report.balanced(forebay)


def spread(stage, wanted):
    """Checks that connections from different ports reach all wanted servers and no others."""
    counts = Counter(curl(stage, "client", f"{SERVICE}/").strip() for _ in range(REQUESTS))
    # With equal shares, the probability that one of three servers gets less than five of 60 is about one in a thousand
    # million.
    enough = all(counts[name] >= 5 for name in wanted)
    return enough and set(counts) == set(wanted), listed(counts)


def one_connection(stage):
    """Checks that twenty requests on one connection reach one server."""
    answers = curl(stage, "client", f"{SERVICE}/", *[f"{SERVICE}/"] * 19).split()
    return len(answers) == 20 and len(set(answers)) == 1, listed(Counter(answers))


def is_whole(path, checksum, get):
    get(path)
    return digest(path) == checksum, f"{path.stat().st_size / 1e6:.1f} MB, sha256 {checksum[:16]}…"


def settled(forebay):
    """Returns the packets of each server, once they have not changed for half a second; they are reported four times
    per second."""
    now = counted(forebay, "packets by backend")
    while True:
        time.sleep(0.5)
        before, now = now, counted(forebay, "packets by backend")
        if now == before:
            return now


def server_of_more(before, forebay):
    """Returns the address of the server with the most packets since then."""
    now = settled(forebay)
    return max(now, key=lambda name: now[name] - before.get(name, 0))


def counted(forebay, heading):
    """Returns the counts of `balance` for each backend of the TCP service, by address."""
    rows = json.loads(forebay.ask("show", "modules", "lb", "--json").out)
    counters = rows[0]["counters"][heading]
    return {name.split()[2].split(":")[0]: count for name, count in counters.items() if " tcp " in name}


def is_left(forebay, backend):
    """Checks that the backend has no sessions; ended sessions are kept for some seconds (`tcp_closing`)."""
    for _ in range(80):
        count = counted(forebay, "open sessions by backend")
        if count[backend] == 0:
            return True, listed(count)
        time.sleep(0.25)
    return False, listed(count)


def with_more(answer, more):
    return answer[0], f"{answer[1]}; {more}"


def listed(counts):
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
