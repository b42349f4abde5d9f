"""A base station with users: packets from a TUN interface enter GTP-U tunnels (3GPP TS 29.281), packets from tunnels
leave by it.

usage: gtpu.py TUN LOCAL UPF USER=TEID:PEER_TEID... (a user is an IPv4 address or the first half of an IPv6 one)

Each packet to the UPF has a PDU Session Container (TS 38.415). The station requests an echo, sends a packet of an
unknown tunnel, and records the responses. When a signal ends it, it prints its counts as JSON: packets up and down, QoS
flows, responses, and errors.
"""

import fcntl
import ipaddress
import json
import os
import select
import signal
import socket
import struct
import sys

PORT = 2152
G_PDU, ECHO_REQUEST, ECHO_RESPONSE, ERROR_INDICATION = 255, 1, 2, 26
CONTAINER = 0x85
# The QoS flows of tunnels; 9 for all others.
FLOWS = {0x1003: 7}
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000


def user(packet):
    """Returns the user of an uplink packet."""
    if packet[0] >> 4 == 4:
        return packet[12:16]
    return packet[8:16]


def message(kind, teid, body=b"", extension=b""):
    flags = 0x30 | (0x04 if extension else 0)
    if kind == ECHO_REQUEST:
        flags, body = 0x32, b"\0\1\0\0" + body
    elif extension:
        body = b"\0\0\0" + bytes([CONTAINER]) + extension + body
    return struct.pack(">BBHI", flags, kind, len(body), teid) + body


def parse(datagram):
    """Returns message type, tunnel, QoS flow (or None) and payload."""
    flags, kind, length, teid = struct.unpack_from(">BBHI", datagram)
    assert flags >> 4 == 3 and length == len(datagram) - 8, "header"
    at, flow = 8, None
    if flags & 7:
        following, at = datagram[11], 12
        while flags & 4 and following:
            size = datagram[at] * 4
            assert size, "extension"
            if following == CONTAINER:
                assert datagram[at + 1] >> 4 == 0, "a downlink container"
                flow = datagram[at + 2] & 0x3F
            following, at = datagram[at + size - 1], at + size
    return kind, teid, flow, datagram[at:]


def main():
    name, local, upf = sys.argv[1:4]
    tunnels, back = {}, set()
    for word in sys.argv[4:]:
        who, teids = word.split("=")
        teid, downward = (int(number, 0) for number in teids.split(":"))
        tunnels[ipaddress.ip_address(who).packed[:8]] = teid
        back.add(downward)
    seen = {"up": 0, "down": 0, "flows": {}, "echo": 0, "errors": 0, "wrong": []}

    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    # Packets from the UPF may have any source port (TS 29.281 section 4.4.2), so the socket is not connected.
    udp.bind((local, PORT))
    peer = (upf, PORT)
    for descriptor in (tun, udp.fileno()):
        os.set_blocking(descriptor, False)

    def end(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    ready = select.epoll()
    ready.register(tun, select.EPOLLIN)
    ready.register(udp.fileno(), select.EPOLLIN)
    print("ready", flush=True)
    udp.sendto(message(ECHO_REQUEST, 0), peer)
    udp.sendto(message(G_PDU, 0xDEAD, bytes([0x45]) + bytes(19), b"\1\x10\x09\0"), peer)
    try:
        while True:
            for descriptor, _ in ready.poll():
                for _ in range(64):
                    try:
                        if descriptor == tun:
                            packet = os.read(tun, 65536)
                            if teid := tunnels.get(user(packet)):
                                seen["up"] += 1
                                # An uplink container: type 1, the QoS flow of the session.
                                container = bytes([1, 0x10, FLOWS.get(teid, 9), 0])
                                udp.sendto(message(G_PDU, teid, packet, container), peer)
                            continue
                        datagram = udp.recv(65536)
                    except BlockingIOError:
                        break
                    try:
                        kind, teid, flow, packet = parse(datagram)
                    except (AssertionError, IndexError, struct.error) as error:
                        seen["wrong"].append(f"{error}: {datagram[:16].hex()}")
                        continue
                    if kind == G_PDU and teid in back:
                        seen["down"] += 1
                        seen["flows"][str(flow)] = seen["flows"].get(str(flow), 0) + 1
                        os.write(tun, packet)
                    elif kind == ECHO_RESPONSE:
                        seen["echo"] += 1
                    elif kind == ERROR_INDICATION:
                        seen["errors"] += 1
                    else:
                        seen["wrong"].append(f"message {kind} of tunnel {teid:#x}")
    except KeyboardInterrupt:
        seen["wrong"] = seen["wrong"][:10]
        print(json.dumps(seen), flush=True)


main()
