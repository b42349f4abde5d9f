"""Listens at an interface and writes every frame to a capture, until a signal ends it.

usage: wire.py INTERFACE FILE
"""

import signal
import socket
import struct
import sys
import time

ETH_P_ALL = 3


def end(*_):
    raise KeyboardInterrupt


signal.signal(signal.SIGTERM, end)
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
wire.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), 64 << 20)
wire.bind((sys.argv[1], 0))
with open(sys.argv[2], "wb", buffering=1 << 16) as capture:
    capture.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 16, 1))
    print("ready", flush=True)
    try:
        while True:
            frame = wire.recv(1 << 16)
            now = time.time_ns() // 1000
            capture.write(struct.pack("<IIII", now // 1_000_000, now % 1_000_000, len(frame), len(frame)))
            capture.write(frame)
    except KeyboardInterrupt:
        pass
