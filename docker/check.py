"""Build the image without a Docker daemon and run the quick sweep in it: ``make image-check``.

Needs root, buildah and debootstrap.  The base is a minimal Debian, so that only Debian's and Python's packages are
fetched, from where this machine's apt and pip take them: pip's settings go in as a build secret, and the local folders
they name are served on loopback while the build runs.  Everything happens in a temporary folder, removed at the end.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import http.server
import json
import os
import re
import shlex
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from stack import HOSTS, USER, missing, stack

ROOT = Path(__file__).resolve().parents[1]
SUITE = "bookworm"
IMAGE = "localhost/adaptbin:check"
QUICK = "--dataset breast_cancer --preset quick --panel tau"
SWEEP = f"tini -- python sweeps/sensitivity.py {QUICK} --output /output"
REPLICAS = 15
RUNS = 21
"""In MLflow: the replicas, their five points, and the study."""
PASSED_ON = ("index-url", "extra-index-url", "find-links", "trusted-host", "proxy", "timeout", "retries")
"""Settings of pip that say where packages come from."""
TOKENS = ("RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN=another", "RAY_AUTH_MODE=disabled")
CALLED = ("mlflow:5000", "mlflow.example:5000")
NOT_ROOTS = ("home/adaptbin", "output", "data")
"""Folders of the image that belong to its user."""
UNWANTED = re.compile(r"(^|/)(\.git|\.env|\.netrc|pip\.conf|secrets|id_[a-z0-9]+|tests|[^/]*\.(csv|xls|arff))$")
"""Names that have no place in /app, /etc, /home, /root, /run and our own package."""


class Failed(Exception):
    """Something is not as it must be."""


class Buildah:
    """The buildah command, on a storage of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.driver = "overlay"
        try:
            container = self("from", "scratch")
            self("mount", container)
            self("rm", container)
        except Failed:
            # An overlay on an overlay is refused; plain copies always work.
            shutil.rmtree(folder / "storage", ignore_errors=True)
            self.driver = "vfs"

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of at most 20 minutes, whatever its exit code."""
        storage = ["--root", f"{self._folder}/storage", "--runroot", f"{self._folder}/run"]
        command = ["buildah", *storage, "--storage-driver", self.driver, *words]
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(self._folder)},
        )

    def __call__(self, *words: str, stdin: str = "") -> str:
        """Output of a command.  Raises Failed with the end of what it said."""
        done = self.run(*words, stdin=stdin)
        if done.returncode:
            said = (done.stdout + done.stderr)[-3000:]
            raise Failed(f"buildah {words[0]} ended with {done.returncode}: {said}")
        return done.stdout.strip()


class Steps:
    """Steps with a name, a time, and a verdict each."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self._start = time.monotonic()

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[list[str]]:
        """Time the block, then tell its verdict and what was appended to the list.  Failed does not leave the block."""
        said: list[str] = []
        start = time.monotonic()
        try:
            yield said
        except (Failed, OSError, subprocess.SubprocessError) as error:
            self.failed.append(name)
            said.append(f"{error} {getattr(error, 'stderr', None) or ''}")
        verdict = "FAILED" if name in self.failed else "ok"
        print(
            f"{verdict:6} {time.monotonic() - start:6.1f} s  {name}{''.join(f'; {line}' for line in said)}", flush=True
        )


def main() -> int:
    """Run every step; 0 if all are as they must be, 1 if not, 2 if the machine lacks something."""
    parser = argparse.ArgumentParser(
        description="Build the image without a Docker daemon and run the quick sweep in it."
    )
    parser.add_argument("--device", default="cpu", help="build of PyTorch, as the Dockerfile's DEVICE")
    device = parser.parse_args().device
    missing = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        print(
            f"image-check needs root, buildah and debootstrap (Debian: apt-get install buildah debootstrap); "
            f"got uid {os.geteuid()}, without {' and '.join(missing) or 'none of them'}",
            file=sys.stderr,
        )
        return 2
    folder = Path(tempfile.mkdtemp(prefix="adaptbin-image-", dir="/var/tmp"))
    start = time.monotonic()
    steps = Steps()
    try:
        buildah = Buildah(folder)
        check(buildah, folder, device, steps)
    finally:
        clean(folder)
    print(f"{'FAILED' if steps.failed else 'ok':6} {time.monotonic() - start:6.1f} s  image-check")
    return 1 if steps.failed else 0


def check(buildah: Buildah, folder: Path, device: str, steps: Steps) -> None:
    """Every step, in order; without an image the later ones are left out."""
    with steps("a minimal Debian as the base"):
        base(buildah, folder)
    sha = commit()
    with contextlib.ExitStack() as servers:
        settings = servers.enter_context(pip_settings(folder))
        if not steps.failed:
            with steps(f"build for {device}, storage {buildah.driver}"):
                build(buildah, device, sha, settings)
    if steps.failed:
        return
    container = buildah("from", "--pull-never", IMAGE)
    with steps("what the image holds") as said:
        said.append(contents(buildah, container, settings))
    output = folder / "output"
    output.mkdir()
    os.chown(output, USER, USER)
    inside = ["run", "--isolation", "chroot", "--volume", f"{output}:/output", container, "--"]
    pins = " ".join(line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    with steps("user, packages and kernels") as said:
        script = (ROOT / "docker" / "inside.py").read_text()
        said.append(buildah(*inside, "env", f"PINS={pins}", "python", "-", device, stdin=script))
    with steps("the quick sweep") as said:
        buildah(*inside, *SWEEP.split())
        said.append(swept(output, sha))
    with steps("the same again trains nothing"):
        before = finished(output)
        buildah(*inside, *SWEEP.split())
        if finished(output) != before:
            raise Failed("results that were there have been written again")
    with steps("an impossible request ends with its own exit code"):
        done = buildah.run(*inside, *SWEEP.split(), "--cpus-per-pack", "4096")
        if done.returncode not in (1, 2) or "4096" not in done.stdout + done.stderr:
            raise Failed(f"exit code must be 1 or 2 with a reason, got {done.returncode}: {done.stderr[-1000:]}")
    lacks = missing() + ([] if buildah.driver == "overlay" else ["storage with overlays"])
    if lacks:
        print(f"left out         compose.yaml's services, which need {', '.join(lacks)}")
        return
    with steps("compose.yaml's services, two workers, and the quick sweep on them") as said:
        said.append(services(buildah, folder))


def services(buildah: Buildah, folder: Path) -> str:
    """Run compose.yaml's commands in copies of the image.  Raises Failed for the first thing that is not so."""
    roots = {host: Path(buildah("mount", buildah("from", "--pull-never", IMAGE))) for host in HOSTS[1:]}
    environment = json.loads(buildah("inspect", "--type", "image", IMAGE))["OCIv1"]["config"]["Env"]
    home = folder / "stack"
    home.mkdir(mode=0o711)
    folder.chmod(0o711)
    with stack(home, roots, environment) as up:
        job = up.job(*QUICK.split())
        if job.returncode:
            raise Failed(f"the sweep ended with {job.returncode}: {job.stdout[-2000:]}{job.stderr[-2000:]}")
        runs = up.query("select status, count(*) from runs group by status")
        artifacts = [path for path in (home / "artifacts").rglob("*") if path.is_file()]
        if len(finished(home / "output")) != REPLICAS or runs != f"FINISHED|{RUNS}" or not artifacts:
            raise Failed(
                f"{REPLICAS} results, {RUNS} finished runs and artifacts must be there, got {runs}, {artifacts}"
            )
        ask = ["ray", "health-check", "--address=head:6379"]
        answers = [up.run("sweep", ask, variables=[word]).returncode for word in TOKENS]
        if answers[0] or not all(answers[1:]):
            raise Failed(f"Ray must answer to its token and to no other, got exit codes {answers}")
        codes = [up.run("sweep", ["wget", "-qO-", f"--header=Host: {host}", "http://mlflow:5000/"]) for host in CALLED]
        if [bool(done.returncode) for done in codes] != [False, True]:
            raise Failed(f"MLflow must answer to {CALLED[0]} and not to {CALLED[1]}")
        if not up.run("mlflow", ["touch", "/home/adaptbin/written"]).returncode:
            raise Failed("MLflow's container must not be writable outside of its volume and /tmp")
        slowest = max(up.stop(host) for host in ("worker", "worker2", "head", "mlflow"))
    return (
        f"{runs.partition('|')[2]} runs in PostgreSQL, {len(artifacts)} artifacts, each ends in {slowest:.0f} s or less"
    )


def base(buildah: Buildah, folder: Path) -> None:
    """A minimal Debian as the image ``base``, from the mirror that this machine's apt uses, if it does."""
    listed = (
        subprocess.run(
            ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages"],
            capture_output=True,
            text=True,
            check=False,
        )
        if shutil.which("apt-get")
        else None
    )
    mirrors = [line.split()[0] for line in (listed.stdout if listed else "").splitlines() if line.endswith(f" {SUITE}")]
    command = ["debootstrap", "--variant=minbase", SUITE, str(folder / "base"), *mirrors[:1]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise Failed(f"debootstrap ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-1000:]}")
    container = buildah("from", "scratch")
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".tar") as archive:
        subprocess.run(["tar", "-C", str(folder / "base"), "-cf", archive.name, "."], check=True)
        buildah("add", container, archive.name, "/")
    buildah("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
    buildah("commit", "--rm", container, "base")
    shutil.rmtree(folder / "base")


def build(buildah: Buildah, device: str, sha: str, settings: dict[str, Path]) -> None:
    """Build the image as a person would, with the base and the secrets of this machine."""
    arguments = {"BASE_IMAGE": "localhost/base", "DEVICE": device, "GIT_SHA": sha}
    words = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    words += [f"--secret=id={name},src={path}" for name, path in settings.items()]
    buildah("build", "--isolation=chroot", "--pull-never", "--file=docker/Dockerfile", f"--tag={IMAGE}", *words, ".")


@contextlib.contextmanager
def pip_settings(folder: Path) -> Iterator[dict[str, Path]]:
    """This machine's settings of pip as build secrets; local folders are served on loopback until the block ends."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    found: dict[str, list[str]] = {}
    # The environment overrides files, and pip lists it first.
    for line in reversed(listed.splitlines()):
        name, _, value = line.partition("=")
        found[name.rsplit(".", 1)[-1]] = str(ast.literal_eval(value)).split()
    lines = ["[global]"]
    secrets = {"pip_conf": folder / "pip.conf"}
    with contextlib.ExitStack() as servers:
        for name in (name for name in PASSED_ON if name in found):
            values = [servers.enter_context(served(path)) if (path := local(value)) else value for value in found[name]]
            lines.append(f"{name} = {' '.join(values)}")
        if "cert" in found:
            secrets["ca"] = Path(found["cert"][0])
            lines.append("cert = /run/secrets/ca")
        secrets["pip_conf"].write_text("\n".join([*lines, ""]))
        secrets["pip_conf"].chmod(0o600)
        yield secrets


def local(value: str) -> Path | None:
    """Folder that a value of pip's settings names, if it names one."""
    path = Path(urlsplit(value).path if value.startswith("file://") else value)
    return path if path.is_absolute() and path.is_dir() else None


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Address of the folder on loopback.  Its parent is served, where the pages of a package index point to files."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *words: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/{folder.name}/"
        finally:
            server.shutdown()


def contents(buildah: Buildah, container: str, settings: dict[str, Path]) -> str:
    """Look through the image's files.  Raises Failed for what others may write, what is secret, what is not ours."""
    root = Path(buildah("mount", container))
    wrong = []
    size = files = 0
    for folder, names, leaves in os.walk(root):
        for name in (*names, *leaves):
            path = Path(folder) / name
            status = path.lstat()
            inner = str(path.relative_to(root))
            kind = status.st_mode
            if stat.S_ISREG(kind):
                size, files = size + status.st_size, files + 1
            ours = inner.startswith(NOT_ROOTS)
            if kind & stat.S_IWOTH and (stat.S_ISREG(kind) or stat.S_ISDIR(kind) and not kind & stat.S_ISVTX):
                wrong.append(f"/{inner} may be written by anybody")
            if status.st_uid == USER and not ours:
                wrong.append(f"/{inner} belongs to the user")
            own = inner.startswith(("app", "etc/", "home", "root", "run")) or "site-packages/adaptbin" in inner
            if own and UNWANTED.search(inner):
                wrong.append(f"/{inner} does not belong here")
    # Where this build's packages came from is nobody's business who has the image.
    places = [str(root / name) for name in ("app", "etc", "home", "root", "run", "opt/adaptbin/pyvenv.cfg")]
    description = buildah("inspect", "--type", "image", IMAGE)
    for word in re.findall(r"https?://\S+", settings["pip_conf"].read_text()):
        found = subprocess.run(["grep", "-rlIF", word, *places], capture_output=True, text=True, check=False).stdout
        wrong += [f"{line.removeprefix(str(root))} names {word}" for line in found.splitlines()]
        if word in description:
            wrong.append(f"the image's description names {word}")
    buildah("umount", container)
    if wrong:
        raise Failed(f"{len(wrong)} files are not as they must be: {'; '.join(wrong[:20])}")
    return f"{files} files, {size / 1e9:.2f} GB"


def swept(output: Path, sha: str) -> str:
    """What the sweep left.  Raises Failed if something lacks."""
    results = len(finished(output))
    figure = output / "sensitivity" / "breast_cancer" / "figure.png"
    told = json.loads((output / "sensitivity" / "breast_cancer" / "manifest.json").read_text())["git"]
    with contextlib.closing(sqlite3.connect(output / "mlflow.db")) as database:
        runs = dict(database.execute("select status, count(*) from runs group by status"))
    state = {"sha": sha.removesuffix("-dirty") or None, "dirty": sha.endswith("-dirty") if sha else None}
    if results != REPLICAS or not figure.read_bytes().startswith(b"\x89PNG") or set(runs) != {"FINISHED"}:
        raise Failed(f"{REPLICAS} results, a figure and finished runs must be there, got {results}, {figure}, {runs}")
    if told != state or figure.stat().st_uid != USER:
        raise Failed(f"files must name {state} and belong to {USER}, got {told} and {figure.stat().st_uid}")
    return f"{results} replicas, {runs['FINISHED']} runs in MLflow"


def finished(output: Path) -> dict[str, int]:
    """When each result was written, in nanoseconds."""
    return {path.name: path.stat().st_mtime_ns for path in (output / "results" / "breast_cancer").glob("*.json")}


def commit() -> str:
    """Commit of this checkout, with -dirty if there is more than that; empty outside of one."""
    command = shlex.split("git describe --always --abbrev=40 --dirty --exclude=*")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def clean(folder: Path) -> None:
    """Remove the folder, but never through something that is still mounted below it."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in sorted((name for name in mounts if name.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", mount], check=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
