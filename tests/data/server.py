"""A local HTTP server that can answer in full, in part, from a given byte on, or not at all."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Server:
    """What the server does next, and what it was asked for."""

    body: bytes = b""
    status: int = 200
    truncate_after: int | None = None
    """Bytes of the next answers after which the connection is closed, though more were announced."""
    ranges: bool = True
    """Whether it knows HTTP ranges."""
    announce_length: bool = True
    url: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """(path, Range header) of each request."""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers.get("Range")
        self.asked.append((handler.path, asked))
        if self.status != 200:
            handler.send_error(self.status)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.ranges else 0
        if start and start >= len(self.body):
            handler.send_error(416)
            return
        rest = self.body[start:]
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(self.body) - 1}/{len(self.body)}")
        if self.announce_length:
            handler.send_header("Content-Length", str(len(rest)))
        handler.end_headers()
        handler.wfile.write(rest[: self.truncate_after])


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield state
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
