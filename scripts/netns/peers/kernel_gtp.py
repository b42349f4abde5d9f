"""Creates tunnels of the kernel's GTP-U device (drivers/net/gtp.c) by generic netlink, like libgtpnl's gtp-tunnel.

usage: kernel_gtp.py DEVICE PEER USER=TEID:PEER_TEID... (a user is an IPv4 address, or an IPv6 one whose /64 is the
user's)

TEID is the tunnel of packets to PEER, PEER_TEID that of packets from it, as in gtpu.py.
"""

import ipaddress
import socket
import struct
import sys

NETLINK_GENERIC = 16
NLM_F_REQUEST, NLM_F_ACK, NLMSG_ERROR = 1, 4, 2
GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 0x10, 3, 1, 2
# include/uapi/linux/gtp.h
GTP_CMD_NEWPDP = 0
LINK, VERSION, PEER_ADDRESS, MS_ADDRESS, I_TEI, O_TEI, MS_ADDR6, FAMILY = 1, 2, 4, 5, 8, 9, 12, 13


def attribute(kind, value):
    value = value if isinstance(value, bytes) else struct.pack("=I", value)
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


class Netlink:
    def __init__(self):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
        self.socket.bind((0, 0))

    def ask(self, family, command, attributes):
        """Sends a command. Returns the response without headers; empty if it is only a confirmation."""
        body = struct.pack("=BBH", command, 0, 0) + attributes
        self.socket.send(struct.pack("=IHHII", 16 + len(body), family, NLM_F_REQUEST | NLM_F_ACK, 1, 0) + body)
        answer = b""
        while True:
            data, at = self.socket.recv(65536), 0
            while at < len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind == NLMSG_ERROR:
                    (error,) = struct.unpack_from("=i", data, at + 16)
                    if error:
                        raise OSError(-error, f"generic netlink, command {command}: errno {-error}")
                    return answer
                answer += data[at + 20:at + length]
                at += length + -length % 4

    def family(self, name):
        answer = self.ask(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, attribute(CTRL_ATTR_FAMILY_NAME, name.encode() + b"\0"))
        at = 0
        while at < len(answer):
            length, kind = struct.unpack_from("=HH", answer, at)
            if kind == CTRL_ATTR_FAMILY_ID:
                return struct.unpack_from("=H", answer, at + 4)[0]
            at += length + -length % 4
        raise OSError(f"the kernel has no generic netlink family '{name}'")


def main():
    device, peer = sys.argv[1:3]
    netlink = Netlink()
    family = netlink.family("gtp")
    for word in sys.argv[3:]:
        who, teids = word.split("=")
        user = ipaddress.ip_address(who)
        outward, inward = (int(number, 0) for number in teids.split(":"))
        words = attribute(LINK, socket.if_nametoindex(device)) + attribute(VERSION, 1)
        words += attribute(PEER_ADDRESS, ipaddress.ip_address(peer).packed)
        if user.version == 4:
            words += attribute(MS_ADDRESS, user.packed)
        else:
            # The kernel accepts only prefixes of 64 bits.
            words += (attribute(FAMILY, struct.pack("=B", socket.AF_INET6))
                      + attribute(MS_ADDR6, user.packed[:8] + bytes(8)))
        netlink.ask(family, GTP_CMD_NEWPDP, words + attribute(I_TEI, inward) + attribute(O_TEI, outward))
    print("ready", flush=True)


main()
