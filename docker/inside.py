"""What check.py asks of the image from inside: ``python - DEVICE < inside.py``, with constraints.txt in ``$PINS``."""

import os
import sys
from importlib import metadata
from pathlib import Path

import torch

import adaptbin
import sweeps.service
from adaptbin.native import instruction_set

OURS = {"adaptbin", "pip", "setuptools"}
BROUGHT = ("nvidia-", "cuda-", "triton")
"""What CUDA's builds of PyTorch bring; PyTorch itself pins it."""


def plain(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return name.lower().replace("_", "-").replace(".", "-")


def main(device: str, pins: str) -> None:
    """Raises AssertionError for the first thing that is not as it must be."""
    assert os.getuid() != 0, "runs as root"
    assert not os.access("/", os.W_OK) and not os.access(sys.prefix, os.W_OK), "may write where the code is"
    assert os.access(Path.home(), os.W_OK) and os.access("/output", os.W_OK), "may not write where it must"
    for module in (adaptbin, sweeps.service):
        assert str(module.__file__).startswith(sys.prefix), f"{module.__file__} is not of the installed package"
    scripts = sorted(str(path.relative_to("/app")) for path in Path("/app").rglob("*") if path.is_file())
    assert scripts and all(Path(name).match("sweeps/[!_]*.py") for name in scripts), f"/app holds {scripts}"
    kernels = instruction_set()
    assert kernels is not None, "no compiled kernels"
    pinned = {plain(name): version for name, version in (line.split("==") for line in pins.split())}
    found = {plain(package.name): package.version.partition("+")[0] for package in metadata.distributions()}
    others = {
        name: version
        for name, version in found.items()
        if pinned.get(name) != version and name not in OURS and not name.startswith(BROUGHT)
    }
    assert not others, f"versions that are not in constraints.txt: {others}"
    assert (torch.version.cuda is None) == (device == "cpu"), (
        f"PyTorch for CUDA {torch.version.cuda}, asked for {device}"
    )
    print(
        f"uid {os.getuid()}, Python {sys.version.split()[0]}, PyTorch {torch.__version__}, kernels {kernels}, "
        f"{len(found)} packages"
    )


main(sys.argv[1], os.environ["PINS"])
