"""Memory: what a machine has, what a pack takes, and how large it may be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adaptbin.config import Budget, Hyperparameters
from adaptbin.data import get_card
from adaptbin.errors import ResourceError
from adaptbin.training.pack import STACK_ON_CPU
from sweeps.service.memory import (
    GIB,
    GPU_PROCESS_BYTES,
    MARGIN,
    MIB,
    PROCESS_BYTES,
    STACK,
    Need,
    Sizes,
    in_words,
    largest_pack,
    memory_of_a_pack,
    need_of_records,
    need_of_shapes,
    needs,
)
from sweeps.service.nodes import Node, available_memory, local_nodes
from tests.service.fakes import fake_record
from tests.service.test_plan import study_of

EOL = Sizes(1351, 16, 2111)
SHAPED = Need(400 * MIB, 3 * MIB, 6 * MIB)


def test_a_containers_limit_counts(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       24684000 kB\nMemFree: 1 kB\n")
    assert available_memory(meminfo, tmp_path) == 24684000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(meminfo, tmp_path) == 24684000 * 1024
    (tmp_path / "memory.max").write_text("2147483648\n")
    assert available_memory(meminfo, tmp_path) == 2 * GIB
    assert available_memory(tmp_path / "none", tmp_path / "none") is None


def test_this_machine() -> None:
    (node,) = local_nodes()
    assert node.cores >= 1 and node.gpus == 0 and node.gpu_memory is None
    assert node.memory is None or node.memory > 100 * MIB


def test_each_pack_has_its_share() -> None:
    node = Node(4, gpus=2, memory=11 * GIB, gpu_memory=80 * GIB)
    assert memory_of_a_pack(node, 0, 4) == pytest.approx((0.9 * 11 - 1) / 4 * GIB, abs=1)
    assert memory_of_a_pack(node, 0.25, 4) == 18 * GIB
    assert memory_of_a_pack(node, 2, 1) == 72 * GIB  # a pack uses one GPU only
    assert memory_of_a_pack(Node(4, gpus=1), 1, 1) is memory_of_a_pack(Node(4), 0, 1) is None
    assert memory_of_a_pack(Node(4, memory=GIB // 2), 0, 1) == 0


@pytest.mark.parametrize("need", [SHAPED, Need(100, 10), Need(7, 3, 11)])
def test_the_most_models_are_the_most_that_fit(need: Need) -> None:
    for models in range(1, 40):
        limit = need.of(models)
        assert need.most(limit) == models
        assert need.most(limit - 1) == models - 1
        assert need.most(limit + 1) in (models, models + 1)


def test_what_does_not_fit_is_refused() -> None:
    assert largest_pack("eol", SHAPED, SHAPED.of(30), on_gpu=False) == 30
    with pytest.raises(ResourceError, match="got 300 MiB of its node .* needs about 409 MiB; a higher --cpus-per-pack"):
        largest_pack("eol", SHAPED, 300 * MIB, on_gpu=False)
    with pytest.raises(ResourceError, match="of its GPU .* a higher --gpus-per-pack"):
        largest_pack("eol", SHAPED, 300 * MIB, on_gpu=True)
    assert (in_words(1.5 * GIB), in_words(370 * MIB)) == ("1.5 GiB", "370 MiB")


def peaks(*pairs: tuple[int, float], device: str = "cpu") -> list[dict[str, Any]]:
    return [{"pack_size": size, "peak_bytes": int(peak * MIB), "device": device} for size, peak in pairs]


def test_records_tell_more_than_shapes() -> None:
    assert need_of_records([], SHAPED, "cpu") is SHAPED
    assert need_of_records([{"pack_size": 3, "device": "cpu"}], SHAPED, "cpu") is SHAPED
    assert need_of_records(peaks((21, 500), device="cuda:0"), SHAPED, "cpu") is SHAPED
    # One size: the process's own part is known.
    one = need_of_records(peaks((20, 500), (20, 450)), SHAPED, "cpu")
    assert one == Need(PROCESS_BYTES, round(MARGIN * 5 * MIB), measured=True)
    # Two sizes tell both parts; the worst pack counts.
    two = need_of_records(peaks((10, 500), (10, 480), (20, 600)), SHAPED, "cpu")
    assert two == Need(400 * MIB, round(MARGIN * 10 * MIB), measured=True)
    # Noise that makes small packs look larger does not make models free.
    odd = need_of_records(peaks((10, 500), (20, 490)), SHAPED, "cpu")
    assert odd.per_model > 0 and odd.of(20) >= 490 * MIB
    gpu = need_of_records(peaks((10, 1000), device="cuda:0"), SHAPED, "cuda")
    assert gpu == Need(GPU_PROCESS_BYTES, round(MARGIN * 100 * MIB), measured=True)


def test_only_records_of_the_same_work_count() -> None:
    study = study_of(seeds=1)
    records = [fake_record(replica) for replica in study.all_replicas]
    for record in records:
        record["runtime"] |= {"pack_size": 9, "peak_bytes": 490 * MIB}
    sizes = {"eol": EOL, "hfc": Sizes(191, 12)}
    found = needs(study_of("eol", "hfc"), sizes, records, "cpu")
    assert (found["eol"].measured, found["hfc"].measured) == (True, False)
    for record in records:
        record["identity"]["budget"]["epochs"] -= 1
    assert not needs(study, sizes, records, "cpu")["eol"].measured


def test_shapes_count_models_bins_and_shared_draws() -> None:
    eol, esr = get_card("eol").architecture, get_card("esr").architecture
    point = Hyperparameters()
    small = need_of_shapes(EOL, eol, point, Budget(), points=21)
    large = need_of_shapes(Sizes(7360, 178, 11500), esr, point, Budget(), points=21)
    assert large.of(1) > small.of(1) and large.per_model > 20 * small.per_model
    few_bins = need_of_shapes(Sizes(7360, 178, 11500), esr, Hyperparameters(t_max=20), Budget(), points=21)
    assert few_bins.per_model < large.per_model / 3
    assert need_of_shapes(EOL, eol, point, Budget(), points=1).per_model > small.per_model
    gpu = need_of_shapes(EOL, eol, point, Budget(), "cuda", points=21)
    assert gpu.fixed > GPU_PROCESS_BYTES and gpu.per_computed == 0
    assert STACK == STACK_ON_CPU


_TRAIN = """
from pathlib import Path
from adaptbin.config import Budget
from adaptbin.data.encode import encode
from adaptbin.data.sources import load_table
from adaptbin.data.registry import get_card
from adaptbin.training.pack import train_pack
from sweeps.service.panels import SensitivityStudy
card = get_card("breast_cancer")
replicas = SensitivityStudy(cards=(card,), seeds=(0,), budget=Budget(epochs=3, probe_epochs=2)).all_replicas
train_pack(replicas, encode(load_table("breast_cancer")))
(peak,) = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(int(peak) * 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to tell the peak")
def test_a_real_pack_stays_below_its_need() -> None:
    done = subprocess.run([sys.executable, "-c", _TRAIN], capture_output=True, text=True, check=True, env=os.environ)
    card = get_card("breast_cancer")
    need = need_of_shapes(Sizes(364, 30, 569), card.architecture, Hyperparameters(), Budget(), points=21)
    assert 100 * MIB < int(done.stdout) < 1.25 * need.of(21)
