"""The services of compose.yaml without a Docker daemon: their own commands, rights and health checks, in the image.

Each service is a process in a network, process and mount namespace of its own with the image as its root, as a
container is; a bridge in one more namespace joins them, and nothing reaches this machine's network.  PostgreSQL is this
machine's, from Debian's package: its image would need a registry.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

DOCKER = Path(__file__).resolve().parent
USER = 10001
HOSTS = ("postgres", "mlflow", "head", "worker", "worker2", "sweep")
NETWORK = "10.213.77"
VOLUMES = {"mlflow": "artifacts", "head": "output", "sweep": "output"}


def missing() -> list[str]:
    """What this machine lacks for it."""
    lacks = [name for name in ("ip", "unshare") if shutil.which(name) is None]
    lacks += [] if postgres_programs() else ["postgresql"]
    return lacks + ([] if compose_program().exists() else ["docker-compose (of the dev environment)"])


def postgres_programs() -> Path | None:
    """Folder of Debian's newest PostgreSQL."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


def compose_program() -> Path:
    """Docker Compose, where the dev environment has it."""
    return Path(sys.executable).parent / "docker-compose"


def output(*command: str | Path, **options: Any) -> str:
    """What a command of at most four minutes says; raises CalledProcessError."""
    words = [str(word) for word in command]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=240, **options)
    return str(done.stdout).strip()


class Stack:
    """The services, each started by :meth:`start` and ended with the block."""

    def __init__(self, folder: Path, roots: dict[str, Path], environment: Sequence[str]) -> None:
        """``roots``: a mounted copy of the image per service.  ``environment``: the image's, as NAME=value."""
        self._folder, self._roots, self._environment = folder, roots, environment
        self._prefix = f"adaptbin{os.getpid()}-"
        self._started: dict[str, subprocess.Popen[str]] = {}
        output(DOCKER / "secrets.sh", folder / "secrets")
        words: list[str | Path] = ["--file", DOCKER / "compose.yaml", "--profile", "*", "config", "--format", "json"]
        variables = {**os.environ, "SECRETS": str(folder / "secrets"), "WORKER_CPUS": "1"}
        read = json.loads(output(compose_program(), *words, env=variables))
        self._services: dict[str, Any] = read["services"]

    def __enter__(self) -> Stack:
        self._join()
        self._start_postgres()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started.values():
            process.kill()  # unshare takes the whole namespace with it
            process.wait()
        programs = postgres_programs()
        with contextlib.suppress(subprocess.CalledProcessError):
            self._as_postgres(f"{programs}/pg_ctl -m immediate -D {self._folder}/postgres/data stop")
        for name in (*HOSTS, "bridge"):
            subprocess.run(["ip", "netns", "del", self._prefix + name], check=False, capture_output=True)

    def _join(self) -> None:
        """A network namespace per service, and one with the bridge between them."""
        bridge = self._prefix + "bridge"
        output("ip", "netns", "add", bridge)
        output("ip", "-n", bridge, "link", "add", "bridge", "type", "bridge")
        output("ip", "-n", bridge, "link", "set", "bridge", "up")
        for number, name in enumerate(HOSTS):
            space = self._prefix + name
            output("ip", "netns", "add", space)
            pair = ["link", "add", "eth0", "type", "veth", "peer", "name", f"port{number}", "netns", bridge]
            output("ip", "-n", space, *pair)
            output("ip", "-n", bridge, "link", "set", f"port{number}", "master", "bridge", "up")
            output("ip", "-n", space, "address", "add", f"{address(name)}/24", "dev", "eth0")
            output("ip", "-n", space, "link", "set", "eth0", "up")
            output("ip", "-n", space, "link", "set", "lo", "up")
            # Ray finds its own address by the way out, and asks for names that only a name server could know.
            output("ip", "-n", space, "route", "add", "default", "via", f"{NETWORK}.1")
        lines = ["127.0.0.1 localhost", *(f"{address(name)} {name}" for name in HOSTS)]
        (self._folder / "hosts").write_text("\n".join([*lines, ""]))
        (self._folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")

    def _as_postgres(self, command: str) -> str:
        space = self._prefix + "postgres"
        return output("ip", "netns", "exec", space, "runuser", "-u", "postgres", "--", *shlex.split(command), cwd="/")

    def _start_postgres(self) -> None:
        programs, home = postgres_programs(), self._folder / "postgres"
        home.mkdir()
        self._folder.chmod(0o711)
        password = home / "password"
        password.write_text((self._folder / "secrets" / "postgres_password").read_text())
        for path in (home, password):
            shutil.chown(path, "postgres", "postgres")
        settings = self._services["postgres"]["environment"]
        self._as_postgres(
            f"{programs}/initdb -D {home}/data -U {settings['POSTGRES_USER']} --pwfile={password} "
            f"--auth-local=trust {settings['POSTGRES_INITDB_ARGS']}"
        )
        with (home / "data" / "pg_hba.conf").open("a") as rules:
            rules.write("host all all all scram-sha-256\n")
        listen = shlex.quote(f"-c listen_addresses='*' -k {home}")
        self._as_postgres(f"{programs}/pg_ctl -w -D {home}/data -l {home}/log -o {listen} start")
        self.query(f"create database {settings['POSTGRES_DB']}", "postgres")

    def query(self, words: str, database: str = "mlflow") -> str:
        """Answer of the database to a query."""
        return self._as_postgres(
            f"{postgres_programs()}/psql -h {self._folder}/postgres -U mlflow -d {database} -Atc {shlex.quote(words)}"
        )

    def command(self, host: str, words: Sequence[str], *, variables: Sequence[str] = ()) -> list[str]:
        """``words`` in the container of ``host``, with its files, secrets and variables; ``variables`` override."""
        service, root = self._services[host.rstrip("0123456789")], self._roots[host]
        mounts = [(self._folder / name, Path("/etc") / name) for name in ("hosts", "resolv.conf")]
        for secret in service.get("secrets", []):
            mounts.append((self._folder / "secrets" / secret["source"], Path("/run/secrets") / secret["source"]))
        if host in VOLUMES:
            volume = self._folder / VOLUMES[host]
            volume.mkdir(exist_ok=True)
            os.chown(volume, USER, USER)
            mounts.append((volume, Path("/output")))
        lines = ["set -e", f"hostname {host}", f"mount --bind {root} {root}", f"mount -t proc proc {root}/proc"]
        lines += [f"mount --rbind /{name} {root}/{name}" for name in ("dev", "sys")]
        for outside, inside in mounts:
            place = root / inside.relative_to("/")
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch()
            lines.append(f"mount --bind {outside} {place}")
        lines += [f"mount -t tmpfs -o mode=1777 tmpfs {root}{place}" for place in service.get("tmpfs", [])]
        if service.get("read_only"):
            lines.append(f"mount -o remount,bind,ro {root}")
        rights = f"--reuid={USER} --regid={USER} --clear-groups --bounding-set=-all --no-new-privs"
        lines.append(f'exec chroot {root} setpriv {rights} env -i "$@"')
        given = [f"{name}={value}" for name, value in (service.get("environment") or {}).items()]
        environment = [*self._environment, "HOME=/home/adaptbin", *given, *variables]
        spaces = ["unshare", "--mount", "--propagation", "private", "--uts", "--pid", "--fork", "--kill-child"]
        start = ["sh", "-c", 'cd /app; exec "$@"', "sh"]
        joined = ["ip", "netns", "exec", self._prefix + host]
        return [*joined, *spaces, "sh", "-c", "\n".join(lines), "sh", *environment, *start, *words]

    def start(self, host: str) -> None:
        """Start a service in the background, by its own command."""
        service = self._services[host.rstrip("0123456789")]
        words = [word.replace("$$", "$") for word in (service.get("entrypoint") or ["tini", "--"]) + service["command"]]
        with (self._folder / f"{host}.log").open("w") as log:
            command = self.command(host, words)
            self._started[host] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True)

    def wait_healthy(self, host: str) -> None:
        """Ask a service's own health check until it says yes; raises OSError after two minutes."""
        test = self._services[host.rstrip("0123456789")]["healthcheck"]["test"][1:]
        end = time.monotonic() + 120
        while subprocess.run(self.command(host, test), capture_output=True, timeout=60, check=False).returncode:
            if self._started[host].poll() is not None or time.monotonic() > end:
                raise OSError(f"{host} is not healthy: {self.log(host)}")
            time.sleep(1)

    def run(
        self, host: str, words: Sequence[str], *, variables: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the container of a service for at most four minutes."""
        command = self.command(host, words, variables=variables)
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    def job(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run the sweep as `docker compose run sweep OPTIONS` would."""
        entry = [word.replace("$$", "$") for word in self._services["sweep"]["entrypoint"]]
        return self.run("sweep", [*entry, *options])

    def stop(self, host: str) -> float:
        """Seconds in which a service ends after SIGTERM to its first process; raises TimeoutExpired after a minute."""
        start = time.monotonic()
        space = self._prefix + host
        for pid in output("ip", "netns", "pids", space).split():
            if Path(f"/proc/{pid}/comm").read_text().strip() == "tini":
                os.kill(int(pid), signal.SIGTERM)
        self._started[host].wait(timeout=60)
        return time.monotonic() - start

    def log(self, host: str) -> str:
        """The end of what a service said."""
        return (self._folder / f"{host}.log").read_text(errors="replace")[-2000:]


def address(host: str) -> str:
    """Address of a service's namespace."""
    return f"{NETWORK}.{HOSTS.index(host) + 2}"


@contextlib.contextmanager
def stack(folder: Path, roots: dict[str, Path], environment: Sequence[str]) -> Iterator[Stack]:
    """The services up and healthy, in the order that compose.yaml asks for."""
    with Stack(folder, roots, environment) as services:
        for host in ("mlflow", "head"):
            services.start(host)
        services.wait_healthy("head")
        for host in ("worker", "worker2"):
            services.start(host)
        for host in ("worker", "worker2", "mlflow"):
            services.wait_healthy(host)
        yield services
