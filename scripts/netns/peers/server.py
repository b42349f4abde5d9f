"""A server: HTTP that returns its name (`/`) or sends and receives a file (`/file`), and UDP that echoes datagrams.

usage: server.py NAME PORT [FILE]
"""

import http.server
import os
import shutil
import socket
import sys
import threading

NAME, PORT = sys.argv[1], int(sys.argv[2])
FILE = sys.argv[3] if len(sys.argv) > 3 else None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/file" and FILE:
            self.send_response(200)
            self.send_header("Content-Length", str(os.path.getsize(FILE)))
            self.end_headers()
            with open(FILE, "rb") as file:
                shutil.copyfileobj(file, self.wfile, 1 << 16)
            return
        body = f"{NAME}\n".encode()
        self.send_response(200 if self.path == "/" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self):
        """Responds with the length and the checksum of the received data."""
        import hashlib

        left, sha = int(self.headers["Content-Length"]), hashlib.sha256()
        length = left
        while left and (block := self.rfile.read(min(left, 1 << 16))):
            sha.update(block)
            left -= len(block)
        body = f"{length - left} {sha.hexdigest()}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True
    request_queue_size = 128


def echo(udp):
    while True:
        datagram, sender = udp.recvfrom(65536)
        try:
            udp.sendto(datagram, sender)
        except OSError:
            pass  # the first call after an ICMP error fails. The sender repeats its datagram.


udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.bind(("::", PORT))
threading.Thread(target=echo, args=(udp,), daemon=True).start()
server = Server(("::", PORT), Handler)
print("ready", flush=True)
server.serve_forever()
