"""Servers that MLflow can be behind of, and a faulty line to them; all on this machine's loopback."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

from tests.service.tracked import answers, interface, wait_for

Fate = Literal["forward", "refuse", "hang", "lose", "drop"]
"""What becomes of a request: forwarded; answered 500; not answered; forwarded but its answer lost; cut off."""

REQUIRE_POSTGRES = "ADAPTBIN_REQUIRE_POSTGRES"
"""Set to 1, tests fail rather than skip where there is no PostgreSQL."""


class Line:
    """A proxy before an MLflow server (or before none) that does to each request what ``fate`` says."""

    def __init__(self, upstream: str | None) -> None:
        self.fate: Callable[[int, str, str], Fate] = lambda number, method, path: "forward"
        """Given the number of the request, its method and path."""
        self.requests = 0
        self.released = threading.Event()
        line = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                line.requests += 1
                fate = line.fate(line.requests, self.command, self.path)
                if fate == "hang":
                    line.released.wait(60.0)
                if fate in ("hang", "drop"):
                    self.close_connection = True
                elif fate == "refuse" or upstream is None:
                    self.answer(500, b"out of order", "text/plain")
                else:
                    connection = http.client.HTTPConnection(upstream.removeprefix("http://"), timeout=60)
                    headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
                    connection.request(self.command, self.path, body, headers)
                    response = connection.getresponse()
                    content = response.read()
                    connection.close()
                    if fate == "lose":
                        self.close_connection = True
                    else:
                        self.answer(response.status, content, response.headers.get_content_type())

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

            def answer(self, status: int, content: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Line:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def mlflow_server(folder: Path, database: str) -> Iterator[str]:
    """Address of a real MLflow server with one worker."""
    folder.mkdir(exist_ok=True)
    where = ["--backend-store-uri", database, "--artifacts-destination", str(folder / "artifacts")]
    with interface([sys.executable, "-m", "mlflow", "server", *where], folder) as address:
        wait_for(lambda: answers(f"{address}/health"), 120.0)
        yield address


class Postgres:
    """A PostgreSQL server of its own, in a folder, with trust within this machine's loopback."""

    def __init__(self, binaries: Path, folder: Path, port: int) -> None:
        self._binaries, self._folder, self.port = binaries, folder, port
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as:
            shutil.chown(folder, "postgres")
        self._call("initdb", "-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "--no-sync")
        self.start()

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = f"-h 127.0.0.1 -p {self.port} -k {self._folder} -c fsync=off"
        self._call(
            "pg_ctl", "-D", str(self._folder / "data"), "-w", "-l", str(self._folder / "log"), "-o", options, "start"
        )

    def stop(self) -> None:
        """Cut all connections and stop."""
        self._call("pg_ctl", "-D", str(self._folder / "data"), "-w", "-m", "immediate", "stop")

    def database(self, name: str) -> str:
        """URI of a new, empty database."""
        self._call("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", name)
        return f"postgresql://postgres:nosecret@127.0.0.1:{self.port}/{name}"

    def _call(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*self._as, str(self._binaries / program), *arguments],
            cwd=self._folder,
            check=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )


def postgres_binaries() -> Path | None:
    """Folder of ``initdb``, on the path or where Debian puts it; None where there is none."""
    found = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return Path(found).resolve().parent if found else debian[-1].parent if debian else None
