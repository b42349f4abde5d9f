"""Reads captures, frame by frame and, if it is installed, with tshark."""

import struct
from collections import Counter

from stage import attempt

PROTOCOLS = {1: "ICMP", 6: "TCP", 17: "UDP", 50: "ESP", 58: "ICMPv6"}


def frames(path):
    """Yields each frame of a capture written by wire.py."""
    data = path.read_bytes()
    at = 24
    while at + 16 <= len(data):
        (length,) = struct.unpack_from("<I", data, at + 8)
        yield data[at + 16:at + 16 + length]
        at += 16 + length


def kinds(path):
    """Returns the number of frames of each protocol in a capture."""
    count = Counter()
    for frame in frames(path):
        kind = int.from_bytes(frame[12:14], "big")
        if kind == 0x0800:
            protocol = frame[23]
        elif kind == 0x86DD:
            protocol = frame[20]
        else:
            count["ARP" if kind == 0x0806 else f"0x{kind:04x}"] += 1
            continue
        count[PROTOCOLS.get(protocol, f"protocol {protocol}")] += 1
    return count


def listed(count):
    return ", ".join(f"{number} {kind}" for kind, number in count.most_common())


def decoded(path, station, wanted, *options):
    """Checks that tshark finds `wanted` in frames that the station has sent, and no errors in any of them: no truncated
    header, no wrong checksum."""
    checks = [word for protocol in ("ip", "udp", "tcp") for word in ("-o", f"{protocol}.check_checksum:TRUE")]
    # iperf3's payloads are random, and tshark mistakes some for other protocols: its errors about them do not count.
    headers = "(_ws.malformed or _ws.expert.severity == error) and not data and not (udp and not (gtp or vxlan))"
    wrong = " or ".join([f"({headers})", "ip.checksum.status == 0", "udp.checksum.status == 0",
                         "tcp.checksum.status == 0", "icmp.checksum.status == 0", "icmpv6.checksum.status == 0"])

    def count(what):
        done = attempt("tshark", "-n", "-r", path, *checks, *options, "-Y", f"eth.src == {station} and ({what})",
                       "-T", "fields", "-e", "frame.number", timeout=180)
        return None if done.code != 0 else len(done.out.split()), done.last_line()

    (right, said), (bad, _) = count(wanted), count(wrong)
    if right is None or bad is None:
        return False, said
    return right > 0 and bad == 0, f"{right} frames are {wanted.split(' and ')[0]}, {bad} of all are wrong"
