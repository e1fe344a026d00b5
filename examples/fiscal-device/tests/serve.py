"""The model as a device at a port of this machine, any if it is 0: python tests/serve.py 4100"""

import socketserver
import sys

from model import Device

DEVICE = Device()


class Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(DEVICE.connected())
        while data := self.request.recv(1024):
            self.request.sendall(DEVICE.received(data))


class Server(socketserver.TCPServer):
    """One connection at a time, like the device."""

    allow_reuse_address = True


if __name__ == "__main__":
    with Server(("127.0.0.1", int(sys.argv[1])), Connection) as server:
        print(server.server_address[1], flush=True)  # noqa: T201
        server.serve_forever()
