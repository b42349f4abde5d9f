"""Sends datagrams to an echo server, each up to five times, and prints how many came back unchanged.

usage: udp_client.py HOST PORT LENGTH COUNT
"""

import os
import socket
import sys

host, port, length, count = sys.argv[1], *map(int, sys.argv[2:5])
client = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(2)
client.connect((host, port))
right, again, why = 0, 0, ""
for number in range(count):
    sent = (f"{os.getpid()} {number:08} " * length)[:length].encode()
    for attempt in range(5):
        try:
            client.send(sent)
            # A late response to an earlier datagram is not counted for this one.
            while (back := client.recv(65536)) != sent:
                pass
            right += 1
            again += attempt
            break
        except OSError as error:
            why = f", {error}"
print(f"{right} of {count} datagrams of {length} bytes came back, {again} sent again{why if right < count else ''}")
