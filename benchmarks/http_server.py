"""The light server behind a URL: one JSON answer to each POST, connections kept alive, standard library only.

It prints its URL and serves until its input ends. What is measured is the client: this reads a request with two splits.
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # -I leaves the script's own folder out

from servers import BASE_TOOLS, answer
from servers import json as json_module

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
REFUSED = b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n"


class Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, rest = self.buffer.split(b"\r\n\r\n", 1)
            length = next(
                (int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"), 0
            )
            if len(rest) < length:
                return
            body, self.buffer = rest[:length], rest[length:]
            self.transport.write(respond(body) if head.startswith(b"POST ") else REFUSED)


def respond(body: bytes) -> bytes:
    request = json_module.loads(body)
    if "id" not in request:
        return ACCEPTED
    result = answer(request, BASE_TOOLS)
    return HEAD % len(result) + result


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


asyncio.run(main())
