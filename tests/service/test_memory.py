"""Memory: what a machine has, what a pack takes, and how large it may be."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from adaptbin.config import Architecture, Budget, EncoderName, Finetuning, Hyperparameters
from adaptbin.data import get_card
from adaptbin.encoders.base import Columns
from adaptbin.encoders.registry import make_encoder
from adaptbin.errors import ResourceError
from adaptbin.training.pack import STACK_ON_CPU
from sweeps.service.kinds import work_of
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
from sweeps.service.models import encoder_size
from sweeps.service.nodes import Node, available_memory, local_nodes
from tests.service.fakes import fake_record
from tests.service.moving import EncoderStudy
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
    assert {work.dataset: need.measured for work, need in found.items()} == {"eol": True, "hfc": False}
    for record in records:
        record["identity"]["budget"]["epochs"] -= 1
    (need,) = needs(study, sizes, records, "cpu").values()
    assert not need.measured


def shaped(name: str, sizes: Sizes, device: str = "cpu", models: int = 21, **changes: Any) -> Need:
    """Of so many points of a data set that differ in nothing that counts; ``changes``: in other than the usual one."""
    study = study_of(name)
    point = study.default_point_of(name)
    for field, value in changes.items():
        held = next(part for part in (point.hyperparameters, point.architecture, point) if hasattr(part, field))
        new = replace(held, **{field: value})
        names = {Hyperparameters: "hyperparameters", Architecture: "architecture"}
        point = replace(point, **{names[type(held)]: new}) if type(held) in names else new
    return need_of_shapes(sizes, [point] * models, device)


ESR = Sizes(7360, 178, 11500)


def test_shapes_count_models_bins_and_shared_draws() -> None:
    small, large = shaped("eol", EOL), shaped("esr", ESR)
    assert large.of(1) > small.of(1) and large.per_model > 20 * small.per_model
    assert shaped("esr", ESR, t_max=20).per_model < large.per_model / 3
    assert shaped("eol", EOL, models=1).per_model > small.per_model
    gpu = shaped("eol", EOL, "cuda")
    assert gpu.fixed > GPU_PROCESS_BYTES and gpu.per_computed == 0
    assert STACK == STACK_ON_CPU


SCRATCH: dict[str, Any] = {"pretext": "none", "budget": Budget(epochs=0), "finetuning": Finetuning()}


def test_encoders_take_what_they_keep() -> None:
    need = {name: shaped("esr", ESR, encoder=name) for name in get_args(EncoderName)}
    # A perceptron of 512 units keeps 3,000 numbers per row; attention among 179 tokens millions.
    assert need["t2g_former"].per_computed > need["ft_transformer"].per_computed > 5 * need["mlp"].per_computed
    assert need["ft_transformer"].per_computed > 4 * 256 * 2_000_000
    few = {name: shaped("hfc", Sizes(191, 12), encoder=name).per_computed for name in get_args(EncoderName)}
    assert few["ft_transformer"] < need["ft_transformer"].per_computed / 20


def test_fine_tuning_adds_to_a_pretraining_and_is_less_alone() -> None:
    probed, tuned = shaped("eol", EOL), shaped("eol", EOL, finetuning=Finetuning())
    scratch = shaped("eol", EOL, **SCRATCH)
    assert tuned.per_model > probed.per_model > scratch.per_model > 0
    assert tuned.per_model < 2 * probed.per_model  # there is no decoder any more


@pytest.mark.parametrize("encoder", get_args(EncoderName))
def test_an_encoders_size_is_what_it_says_itself(encoder: EncoderName) -> None:
    architecture = Architecture(width=24, depth=3, batch_size=16, encoder=encoder)
    made = make_encoder(Columns(7), architecture)
    weights = sum(math.prod(shape) for shape in made.shapes().values())
    assert encoder_size(architecture, 7) == (weights, made.width, made.products, made.kept_numbers(1))


def test_records_of_other_encoders_and_of_fine_tuning_do_not_count() -> None:
    study = EncoderStudy(cards=(get_card("eol"),), seeds=(0,))
    records = [fake_record(replica) for replica in study.all_replicas]
    for record in records:
        record["runtime"] |= {"pack_size": 2, "peak_bytes": 490 * MIB}
    works = [work_of(replica) for replica in study.all_replicas]
    for record, work in zip(records, works, strict=True):
        found = needs(study, {"eol": EOL}, [record], "cpu")
        assert {other for other, need in found.items() if need.measured} == {work}
    (probed,) = needs(study_of(), {"eol": EOL}, records, "cpu").values()
    assert not probed.measured


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
    need = shaped("breast_cancer", Sizes(364, 30, 569))
    assert 100 * MIB < int(done.stdout) < 1.25 * need.of(21)
