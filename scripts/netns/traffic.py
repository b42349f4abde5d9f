"""Checks with the usual commands: ping, traceroute, iperf3, curl. Each returns whether it passed, and the
observation."""

import hashlib
import json
import os
import re
import sys
import time

from stage import PEERS, Broken

# In seconds. On a busy machine, the first packet may wait for several others.
PATIENCE = 10


def ping(stage, space, host, *more, count=5, size=56):
    """Checks that `count` pings are answered and none is lost. `-W` is not used, because it applies only until the
    first response. After that, ping waits for twice the longest measured time, and on a busy machine counts late
    responses as lost. With a deadline, ping sends further pings after losses, until it has `count` responses. So this
    function checks the sequence numbers of the responses: no number may be missing between the first response and the
    last. Earlier pings may be lost while addresses are resolved. Pings in flight at the end have larger numbers."""
    done = stage.attempt(space, "ping", "-n", "-c", count, "-i", "0.02", "-w", PATIENCE, "-s", size, *more, host)
    answered = {int(number) for number in re.findall(r"bytes from .*icmp_seq=(\d+) ", done.out)}
    if not answered:
        return False, done.last_line()
    lost = sorted(set(range(min(answered), max(answered))) - answered)
    times = done.first(r"= [\d.]+/([\d.]+)/", "")
    seen = f"{len(answered)} of {count} of {size} bytes came back" + (f", {float(times):.1f} ms" if times else "")
    if lost:
        seen += f"; lost: number {', '.join(map(str, lost))} of {max(answered)}"
    return len(answered) >= count and not lost, seen


def refused_ping(stage, space, host, expected, *more, size=56):
    """Checks that a ping is not answered, and that an error with the text `expected` is reported."""
    done = stage.attempt(space, "ping", "-n", "-c", 1, "-W", PATIENCE, "-s", size, *more, host)
    lines = [line for line in done.both.splitlines() if "From" in line or "error" in line]
    return expected in done.both, lines[0] if lines else done.last_line()


def traceroute(stage, space, host, hops):
    """Checks that the path to `host` is `hops`; the last hop is the host itself."""
    done = stage.attempt(space, "traceroute", "-n", "-q", 1, "-w", PATIENCE, "-m", len(hops) + 2, host, timeout=90)
    seen = [line.split()[1] for line in done.out.splitlines()[1:] if len(line.split()) > 1]
    return seen == hops, " > ".join(seen) or done.last_line()


def iperf_end(stage, space, host, *more, megabytes):
    """Returns the `end` object of an iperf3 transfer. iperf3 may send more than requested (3.18 does)."""
    words = ["iperf3", "-J", "-c", host, "-n", f"{megabytes}M", "--connect-timeout", 1000 * PATIENCE, *more]
    for again in range(20):
        done = stage.attempt(space, *words, timeout=120)
        try:
            result = json.loads(done.out)
        except json.JSONDecodeError:
            raise Broken(done.last_line()) from None
        # The client of the previous test has ended, but its server has not, or is just opening its socket again.
        if not any(why in result.get("error", "") for why in ("server is busy", "Connection reset")) or again == 19:
            break
        time.sleep(0.5)
    if "error" in result:
        raise Broken(result["error"])
    return result["end"]


def iperf(stage, space, host, *more, megabytes=20):
    """Sends this amount by TCP, or with `-u` by UDP. Of UDP datagrams, four in five must arrive, because a busy machine
    may lose some. With `--short`, a single datagram is enough."""
    end = iperf_end(stage, space, host, *more, megabytes=megabytes)
    if "-u" in more:
        end = end["sum"]
        packets, lost = end["packets"], end["lost_packets"]
        enough = lost < packets if stage.options.short else lost * 5 <= packets
        return packets > 0 and enough, f"{packets - lost} of {packets} datagrams, {rate(end)}"
    got = end["sum_received"]["bytes"]
    again = end["sum_sent"].get("retransmits", 0)
    # The receiver does not count data that is in flight when the sender ends, up to the size of the windows.
    return got > 0, f"{got / 1e6:.1f} MB, {rate(end['sum_received'])}, {again} sent again"


def rate(end):
    return f"{end['bits_per_second'] / 1e6:.0f} Mbit/s"


def curl(stage, space, url, *more, timeout=300):
    """Returns the response of a server."""
    done = stage.attempt(space, "curl", "-sS", "--noproxy", "*", "--connect-timeout", PATIENCE, *more, url,
                         timeout=timeout)
    if done.code != 0:
        raise Broken(done.last_line())
    return done.out


def download(stage, space, url, size, checksum, *more):
    """Checks that a file is downloaded completely and correctly."""
    target = stage.path("downloaded")
    curl(stage, space, url, "-o", target, *more)
    got, length = digest(target), target.stat().st_size
    target.unlink()
    return got == checksum, f"{length / 1e6:.1f} of {size / 1e6:.1f} MB, sha256 {got[:16]}… " + (
        "is right" if got == checksum else f"should be {checksum[:16]}…")


def no_connection(stage, space, url, within=2):
    """Checks that no connection is accepted."""
    done = stage.attempt(space, "curl", "-sS", "--noproxy", "*", "--connect-timeout", within, url)
    return done.code in (7, 28), done.last_line()


def echo(stage, space, host, port, length, count=10):
    """Checks that UDP datagrams are echoed."""
    done = stage.attempt(space, sys.executable, PEERS / "udp_client.py", host, port, length, count)
    answered = done.first(r"^(\d+) of", "0")
    return answered == str(count), done.last_line()


def upload(stage, space, url, file, size, checksum):
    """Checks that a server receives a file completely and correctly."""
    answer = curl(stage, space, url, "-T", file).split()
    right = answer == [str(size), checksum]
    return right, f"{size / 1e6:.1f} MB, the server's sha256 is " + ("right" if right else f"wrong: {' '.join(answer)}")


def digest(path):
    sha = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()


def random_file(stage, name, megabytes):
    """Creates a file of random bytes. Returns its path, length and checksum."""
    path = stage.path(name)
    with open(path, "wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1_000_000))
    return path, megabytes * 1_000_000, digest(path)
