"""Downloads a file slowly, over one connection, until it is sent SIGUSR1, then the rest at once; tells its length and checksum.

usage: slow_client.py HOST PORT
"""

import hashlib
import signal
import socket
import sys
import time

fast = False


def hurry(*_):
    global fast
    fast = True


signal.signal(signal.SIGUSR1, hurry)
client = socket.socket()
# Little fits, so that the server goes on sending all the time.
client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
client.settimeout(60)
client.connect((sys.argv[1], int(sys.argv[2])))
client.sendall(b"GET /file HTTP/1.1\r\nHost: service\r\nConnection: close\r\n\r\n")
print("ready", flush=True)
whole, head = hashlib.sha256(), b""
while b"\r\n\r\n" not in head:
    head += client.recv(1)
left = int(next(line for line in head.decode().lower().splitlines() if line.startswith("content-length:")).split()[1])
length = left
while left:
    block = client.recv(min(left, 1 << 16 if fast else 1 << 10))
    if not block:
        break
    whole.update(block)
    left -= len(block)
    if not fast:
        time.sleep(0.02)
print(f"got {length - left} {whole.hexdigest()}", flush=True)
