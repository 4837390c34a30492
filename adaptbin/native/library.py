"""Where the compiled library comes from, and its functions' signatures."""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_long, c_void_p
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from adaptbin.errors import ConfigError

SWITCH = "ADAPTBIN_NATIVE"
"""Environment variable: "0" trains without compiled kernels, a name ("avx2") asks for one instruction set."""

INTERFACE = 4
"""What ``adaptbin_interface`` of the C sources returns."""


class Heads(Structure):
    """What :func:`reconstruct` needs to know of the heads; the C side explains each field."""

    _fields_ = [
        *((name, c_long) for name in ("replicas", "width", "n_categorical", "n_numerical", "most_rows")),
        *((name, c_void_p) for name in ("weight", "weight_gradient", "bias", "bias_gradient")),
        *((name, c_long) for name in ("weight_replica", "bias_replica")),
        *((name, c_void_p) for name in ("rows", "starts", "w_sord", "w_var", "mse_weight")),
    ]


class Optimizer(Structure):
    """What :func:`adamw` needs to know of the parameters; the C side explains each field."""

    _fields_ = [
        *((name, c_long) for name in ("replicas", "stride")),
        *((name, c_void_p) for name in ("values", "gradients", "first", "second", "length", "rate", "decay")),
        *((name, c_double) for name in ("beta1", "beta2", "eps", "max_norm")),
    ]


_SIGNATURES = {
    "adaptbin_linear_forward": [
        *[c_long] * 4,
        *[c_void_p, c_long, c_long],
        *[c_void_p, c_long] * 2,
        *[c_double, c_int],
        *[c_void_p, c_long, c_long],
        c_void_p,
    ],
    "adaptbin_linear_backward": [
        *[c_long] * 4,
        *[c_void_p, c_long, c_long],
        *[c_void_p, c_void_p, c_long, c_double],
        *[c_void_p, c_void_p, c_long],
        *[c_int, c_void_p],
    ],
    "adaptbin_reconstruct": [
        *[POINTER(Heads), c_long, c_void_p],
        *[c_void_p, c_long, c_long] * 3,
        *[c_void_p, c_void_p],
    ],
    "adaptbin_adamw": [POINTER(Optimizer), c_double, c_double, c_double],
    "adaptbin_normalise_forward": [*[c_long] * 4, c_double, c_void_p, *[c_void_p, c_long] * 2, *[c_void_p] * 5],
    "adaptbin_normalise_backward": [*[c_long] * 4, *[c_void_p] * 3, c_long, *[c_void_p] * 4],
    "adaptbin_gate_forward": [*[c_long] * 3, *[c_void_p] * 2, c_long, c_double, c_void_p],
    "adaptbin_gate_backward": [*[c_long] * 3, *[c_void_p] * 2, c_long, c_double, *[c_void_p] * 2],
}


def _file() -> Path | None:
    """The library that was compiled when the package was installed, if one was."""
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_kernels{suffix}")
        if path.exists():
            return path
    return None


def _opened(path: Path | None) -> ctypes.CDLL | None:
    """The library at ``path``; None, with a warning, where it is broken or was compiled from other sources."""
    if path is None:
        return None
    try:
        library = ctypes.CDLL(str(path))
        if library.adaptbin_interface() != INTERFACE:
            raise OSError("it was compiled from other sources")
        library.adaptbin_choose.argtypes, library.adaptbin_chosen.restype = [c_char_p], c_char_p
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, c_int
    except (OSError, AttributeError) as error:
        warnings.warn(f"compiled kernels cannot be used, install the package anew ({path.name}: {error})", stacklevel=3)
        return None
    return library


@functools.cache
def load() -> ctypes.CDLL | None:
    """The library with its signatures, or None where there is none to use: not compiled, switched off, or no set of
    instructions that this processor has.

    Raises ConfigError when the switch names a set that cannot be used.
    """
    wanted = os.environ.get(SWITCH, "")
    if wanted == "0":
        return None
    library = _opened(_file())
    if library is not None and not library.adaptbin_choose(wanted.encode() or None):
        library = None
    if library is None and wanted:
        raise ConfigError(
            f"{SWITCH} must be 0 or an instruction set that was compiled and that this processor has, got {wanted!r}"
        )
    return library
