"""Downloads a file over one connection: first a quarter, and at each SIGUSR1 another quarter. Prints the length and the
checksum.

usage: slow_client.py HOST PORT
"""

import hashlib
import signal
import socket
import sys

QUARTERS = 4

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
client = socket.socket()
# The buffer is small, so that most of each quarter is sent only when it is requested.
client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
client.settimeout(60)
client.connect((sys.argv[1], int(sys.argv[2])))
client.sendall(b"GET /file HTTP/1.1\r\nHost: service\r\nConnection: close\r\n\r\n")
whole, head = hashlib.sha256(), b""
while b"\r\n\r\n" not in head:
    head += client.recv(1)
length = int(next(line for line in head.decode().lower().splitlines() if line.startswith("content-length:")).split()[1])
got = 0
for quarter in range(1, QUARTERS + 1):
    while got < length * quarter // QUARTERS and (
            block := client.recv(min(length * quarter // QUARTERS - got, 1 << 16))):
        whole.update(block)
        got += len(block)
    if quarter < QUARTERS:
        print(f"ready: quarter {quarter}", flush=True)
        signal.sigwait({signal.SIGUSR1})
print(f"got {got} {whole.hexdigest()}", flush=True)
