"""What the usual commands see: ping, traceroute, iperf3, curl. Each answers whether it is as it should be, and what was seen."""

import hashlib
import json
import os
import re
import sys
import time

from stage import PEERS, Broken

# Seconds; on a busy machine the first packet may wait for several others.
PATIENCE = 10


def ping(stage, space, host, *more, count=5, size=56):
    """`count` pings come back, and none is lost. Not by `-W`, which counts only until the first has come back: then ping waits for
    twice the longest time seen, and takes an answer for lost that a busy machine is late with. With a deadline it goes on until it has
    `count` answers, whatever was lost. So the numbers of the answers are looked at: none may be missing between the first, before
    which addresses were resolved, and the last. Those that are on the way when ping ends have larger numbers."""
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


def refused_ping(stage, space, host, told, *more, size=56):
    """A ping that does not come back, of which somebody tells `told`."""
    done = stage.attempt(space, "ping", "-n", "-c", 1, "-W", PATIENCE, "-s", size, *more, host)
    lines = [line for line in done.both.splitlines() if "From" in line or "error" in line]
    return told in done.both, lines[0] if lines else done.last_line()


def traceroute(stage, space, host, hops):
    """The way to `host` is by `hops`, the last of which is itself."""
    done = stage.attempt(space, "traceroute", "-n", "-q", 1, "-w", PATIENCE, "-m", len(hops) + 2, host, timeout=90)
    seen = [line.split()[1] for line in done.out.splitlines()[1:] if len(line.split()) > 1]
    return seen == hops, " > ".join(seen) or done.last_line()


def iperf_told(stage, space, host, *more, megabytes):
    """What iperf3 tells of a transfer: its `end`. It may send more than it was asked to (3.18 does so)."""
    words = ["iperf3", "-J", "-c", host, "-n", f"{megabytes}M", "--connect-timeout", 1000 * PATIENCE, *more]
    for again in range(20):
        done = stage.attempt(space, *words, timeout=120)
        try:
            told = json.loads(done.out)
        except json.JSONDecodeError:
            raise Broken(done.last_line()) from None
        # The client of the test before has ended, and its server not yet, or it makes its socket anew.
        if not any(why in told.get("error", "") for why in ("server is busy", "Connection reset")) or again == 19:
            break
        time.sleep(0.5)
    if "error" in told:
        raise Broken(told["error"])
    return told["end"]


def iperf(stage, space, host, *more, megabytes=20):
    """So many bytes are sent by TCP; with `-u` by UDP, of which four in five arrive (the rest the machine was too
    busy for), with `--short` any at all."""
    end = iperf_told(stage, space, host, *more, megabytes=megabytes)
    if "-u" in more:
        end = end["sum"]
        packets, lost = end["packets"], end["lost_packets"]
        enough = lost < packets if stage.options.short else lost * 5 <= packets
        return packets > 0 and enough, f"{packets - lost} of {packets} datagrams, {rate(end)}"
    got = end["sum_received"]["bytes"]
    again = end["sum_sent"].get("retransmits", 0)
    # What is still on its way when the sender says goodbye, up to all that windows hold, the receiver does not count.
    return got > 0, f"{got / 1e6:.1f} MB, {rate(end['sum_received'])}, {again} sent again"


def rate(end):
    return f"{end['bits_per_second'] / 1e6:.0f} Mbit/s"


def curl(stage, space, url, *more, timeout=300):
    """What a server answers."""
    done = stage.attempt(space, "curl", "-sS", "--noproxy", "*", "--connect-timeout", PATIENCE, *more, url, timeout=timeout)
    if done.code != 0:
        raise Broken(done.last_line())
    return done.out


def download(stage, space, url, size, checksum, *more):
    """A file, whole and right."""
    target = stage.path("downloaded")
    curl(stage, space, url, "-o", target, *more)
    got, length = digest(target), target.stat().st_size
    target.unlink()
    return got == checksum, f"{length / 1e6:.1f} of {size / 1e6:.1f} MB, sha256 {got[:16]}… " + (
        "is right" if got == checksum else f"should be {checksum[:16]}…")


def no_connection(stage, space, url, within=2):
    """Nobody answers."""
    done = stage.attempt(space, "curl", "-sS", "--noproxy", "*", "--connect-timeout", within, url)
    return done.code in (7, 28), done.last_line()


def echo(stage, space, host, port, length, count=10):
    """UDP datagrams that come back."""
    done = stage.attempt(space, sys.executable, PEERS / "udp_client.py", host, port, length, count)
    answered = done.first(r"^(\d+) of", "0")
    return answered == str(count), done.last_line()


def upload(stage, space, url, file, size, checksum):
    """A file that a server gets, whole and right."""
    told = curl(stage, space, url, "-T", file).split()
    right = told == [str(size), checksum]
    return right, f"{size / 1e6:.1f} MB, the server's sha256 is " + ("right" if right else f"wrong: {' '.join(told)}")


def digest(path):
    sha = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()


def random_file(stage, name, megabytes):
    """A file of which every byte is by chance; its path, length and checksum."""
    path = stage.path(name)
    with open(path, "wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1_000_000))
    return path, megabytes * 1_000_000, digest(path)
