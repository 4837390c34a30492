"""The files of docker/: held to their schemas, and to rules of our own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
JOBS = ("sweep",)
SECRET = re.compile(r"(?i)(password|token|secret|key)[a-z_]*\s*[:=]\s*[\"']?[0-9a-z+]{12,}")


def compose(*files: str, **variables: str) -> dict[str, Any]:
    """The services as Docker Compose itself understands the files: checked against its schema, variables filled in."""
    command = Path(sys.executable).parent / "docker-compose"
    words = [word for name in files or ("compose.yaml",) for word in ("--file", str(DOCKER / name))]
    done = subprocess.run(
        [str(command), *words, "--profile", "*", "config", "--format", "json"],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DOCKER / "rayjob.yaml").read_text(encoding="utf-8")))


def rayjob() -> dict[str, Any]:
    return manifests()[-1]


def pod_templates() -> dict[str, dict[str, Any]]:
    spec = rayjob()["spec"]
    cluster = spec["rayClusterSpec"]
    workers = {group["groupName"]: group["template"] for group in cluster["workerGroupSpecs"]}
    return {"submitter": spec["submitterPodTemplate"], "head": cluster["headGroupSpec"]["template"], **workers}


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


class TestCompose:
    def test_what_a_schema_forbids_is_found(self, tmp_path: Path) -> None:
        wrong = (DOCKER / "compose.yaml").read_text(encoding="utf-8").replace("restart:", "restarts:")
        (tmp_path / "compose.yaml").write_text(wrong, encoding="utf-8")
        with pytest.raises(AssertionError, match="restarts"):
            compose(str(tmp_path / "compose.yaml"))

    def test_ports_are_on_loopback_until_asked(self) -> None:
        ports = [port for service in compose()["services"].values() for port in service.get("ports", [])]
        assert [port["target"] for port in ports] == [8265, 5000]
        assert {port["host_ip"] for port in ports} == {"127.0.0.1"}
        asked = compose(BIND_ADDRESS="192.0.2.1")["services"]
        assert {port["host_ip"] for name in ("head", "mlflow") for port in asked[name]["ports"]} == {"192.0.2.1"}

    def test_what_runs_long_has_a_health_check_a_restart_and_limits(self) -> None:
        for name, service in compose()["services"].items():
            limits = service["deploy"]["resources"]["limits"]
            assert limits.keys() >= {"cpus", "memory"}, name
            if name not in JOBS:
                assert service["healthcheck"]["test"], name
                assert service["restart"] == "unless-stopped", name
            for needed in service.get("depends_on", {}).values():
                assert needed["condition"] == "service_healthy", name

    def test_nothing_gains_privileges(self) -> None:
        for name, service in compose()["services"].items():
            assert service["security_opt"] == ["no-new-privileges:true"], name
            assert service["cap_drop"] == ["ALL"], name
            assert not {"privileged", "network_mode", "pid", "ipc", "cap_add"} & service.keys(), name
            # Our image is not root by itself.
            assert service.get("user") == "postgres" or service["image"].startswith("adaptbin:"), name

    def test_images_have_a_version(self) -> None:
        for name, service in compose()["services"].items():
            tag = service["image"].partition(":")[2]
            assert tag and "latest" not in tag, name

    def test_ray_asks_for_the_token(self) -> None:
        services = compose()["services"]
        for name in ("head", "worker", "sweep"):
            assert services[name]["environment"]["RAY_AUTH_MODE"] == "token"
            assert services[name]["environment"]["RAY_AUTH_TOKEN_PATH"] == "/run/secrets/ray_token"
            assert [secret["source"] for secret in services[name]["secrets"]] == ["ray_token"]

    def test_database_is_out_of_reach(self) -> None:
        read = compose()
        assert read["networks"]["database"]["internal"] is True
        assert {name for name, service in read["services"].items() if "database" in service["networks"]} == {
            "postgres",
            "mlflow",
        }
        assert "cluster" not in read["services"]["mlflow"]["networks"]

    def test_secrets_are_files_that_nobody_committed(self) -> None:
        read = compose()
        assert {name: Path(secret["file"]).name for name, secret in read["secrets"].items()} == {
            "postgres_password": "postgres_password",
            "ray_token": "ray_token",
        }
        assert "secrets/" in (DOCKER / ".gitignore").read_text(encoding="utf-8").split()
        texts = [path for path in DOCKER.iterdir() if path.is_file()]
        assert len(texts) > 5
        for path in texts:
            assert not SECRET.search(path.read_text(encoding="utf-8")), path

    def test_variables_reach_the_services(self) -> None:
        services = compose(WORKERS="5", WORKER_CPUS="3", DEVICE="cuda")["services"]
        assert services["worker"]["deploy"]["replicas"] == 5
        assert "--num-cpus=3" in services["worker"]["command"]
        assert services["head"]["build"]["args"]["DEVICE"] == "cuda"
        assert services["sweep"]["image"] == "adaptbin:cuda"

    def test_workers_with_gpus(self) -> None:
        worker = compose("compose.yaml", "compose.gpu.yaml", WORKER_GPUS="2")["services"]["worker"]
        (device,) = worker["deploy"]["resources"]["reservations"]["devices"]
        assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", 2, ["gpu"])
        assert "--num-gpus=2" in worker["command"]


class TestSecrets:
    def test_they_are_made_once_and_for_nobody_else(self, tmp_path: Path) -> None:
        def make() -> dict[str, str]:
            subprocess.run([str(DOCKER / "secrets.sh"), str(tmp_path / "made")], check=True, capture_output=True)
            return {path.name: path.read_text(encoding="ascii") for path in (tmp_path / "made").iterdir()}

        made = make()
        assert made.keys() == {"postgres_password", "ray_token"}
        assert all(re.fullmatch("[0-9a-f]{64}", secret) for secret in made.values())
        assert len(set(made.values())) == 2
        assert (tmp_path / "made").stat().st_mode & 0o077 == 0
        assert make() == made


class TestRayJob:
    def test_it_is_a_rayjob(self) -> None:
        schema = json.loads((Path(__file__).parent / "rayjob.schema.json").read_text(encoding="utf-8"))
        validator = jsonschema.Draft202012Validator(schema)
        assert [error.message for error in validator.iter_errors(rayjob())] == []
        wrong = {**rayjob(), "spec": {**rayjob()["spec"], "shutdownAfterJobFinishes": False}}
        assert [error.json_path for error in validator.iter_errors(wrong)] == ["$.spec.shutdownAfterJobFinishes"]
        assert list(validator.iter_errors({**rayjob(), "spec": {**rayjob()["spec"], "entryPoint": "x"}}))

    def test_the_rest_is_kubernetes(self) -> None:
        for manifest in manifests()[:-1]:
            assert kubernetes_validate.validate(manifest, "1.33", strict=True)
        for name, template in pod_templates().items():
            whole = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": template}
            assert kubernetes_validate.validate(whole, "1.33", strict=True)
            wrong = {**whole, "template": {"spec": {**template["spec"], "container": []}}}
            with pytest.raises(kubernetes_validate.ValidationError):
                kubernetes_validate.validate(wrong, "1.33", strict=True)

    def test_versions_are_the_pinned_ones(self) -> None:
        assert rayjob()["spec"]["rayClusterSpec"]["rayVersion"] == pins()["ray"]

    def test_ray_asks_for_the_token(self) -> None:
        assert rayjob()["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}

    def test_workers_are_a_range(self) -> None:
        for group in rayjob()["spec"]["rayClusterSpec"]["workerGroupSpecs"]:
            assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]

    def test_pods_are_not_root(self) -> None:
        uid = int(re.findall(r"(?m)^ARG UID=(\d+)$", dockerfile())[0])
        for name, template in pod_templates().items():
            pod = template["spec"]
            assert pod["securityContext"]["runAsNonRoot"] is True, name
            assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == uid, name
            assert pod["automountServiceAccountToken"] is False, name
            for container in pod["containers"]:
                assert container["securityContext"]["allowPrivilegeEscalation"] is False, name
                assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
                assert re.search(r":(?!latest)\S+$", container["image"]), name
                assert container["resources"]["limits"].keys() >= {"cpu", "memory"}, name


def dockerfile() -> str:
    return (DOCKER / "Dockerfile").read_text(encoding="utf-8")


class TestDockerfile:
    def test_the_last_user_is_not_root(self) -> None:
        assert re.findall(r"(?m)^USER (\S+)$", dockerfile())[-1:] == ["adaptbin"]

    def test_every_installation_is_held_to_the_pins(self) -> None:
        installs = re.findall(r"pip install [^;|]*", dockerfile())
        assert len(installs) == 3
        assert all("--constraint constraints.txt" in install for install in installs)

    def test_the_base_is_an_argument_with_a_version(self) -> None:
        stages = re.findall(r"(?m)^FROM (\S+) AS \S+$", dockerfile())
        assert stages == ["${BASE_IMAGE}", "system", "system"]
        assert "ARG BASE_IMAGE=python:3.11-slim-bookworm\n" in dockerfile()

    def test_only_what_the_image_is_made_of_is_sent_to_the_builder(self) -> None:
        lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        rules = [line for line in lines if line and not line.startswith("#")]
        assert rules[0] == "*"
        allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
        assert {path.split("/")[0] for path in copied()} <= allowed
        assert not {"tests", "docker", "mlruns", ".git"} & allowed

    def test_what_is_copied_is_there(self) -> None:
        for path in copied():
            assert list(ROOT.glob(path.removeprefix("./"))), path


def copied() -> list[str]:
    lines = re.findall(r"(?m)^COPY (?!--from)(.+)$", dockerfile())
    return [word for line in lines for word in line.split()[:-1]]


class TestReadme:
    @pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash to read commands")
    def test_files_and_variables_it_names_are_there(self) -> None:
        text = (DOCKER / "README.md").read_text(encoding="utf-8")
        for name in re.findall(r"docker/[A-Za-z.]+[a-z]", text):
            assert (ROOT / name).exists() or name in ("docker/secrets",), name
        known = "".join((DOCKER / name).read_text(encoding="utf-8") for name in ("compose.yaml", "compose.gpu.yaml"))
        variables = set(re.findall(r"`([A-Z][A-Z_]+)`", text))
        assert variables
        for name in variables:
            assert f"${{{name}:-" in known, name
