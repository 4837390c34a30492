"""What all figures share: settings, the lines of text below, and files that are the same every time.

Only modules called ``figures*`` import matplotlib.  Figures are objects with an Agg canvas: nothing touches pyplot, and
settings change only inside a ``with`` block.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import matplotlib as mpl
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from sweeps.service.files import write_atomically
from sweeps.service.layout import FOOTER_LINE

SETTINGS: Any = {
    "font.family": ["DejaVu Sans"],
    "font.size": 7.0,
    "axes.linewidth": 0.5,
    "axes.labelsize": 7.0,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.major.size": 2.0,
    "ytick.major.size": 2.0,
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "mathtext.fontset": "dejavusans",
    "pdf.fonttype": 42,  # TrueType, as publishers ask
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "adaptbin",  # ids depend on the content only: equal tables give equal files
}

STYLES = (
    *(("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v")),
    *(("#56B4E9", "P"), ("#000000", "X"), ("#882255", "<"), ("#999933", ">"), ("#332288", "h")),
)
"""Colour and marker of each data set: Okabe & Ito's colours without yellow, then three of Tol's.  They are told apart
under the common colour blindnesses, and each has a marker of its own."""


def darkened(colour: str) -> tuple[float, float, float]:
    """A colour dark enough for small text."""
    red, green, blue = to_rgb(colour)
    return 0.75 * red, 0.75 * green, 0.75 * blue


def save_figure(figure: Figure, folder: Path, name: str = "figure") -> list[Path]:
    """Write ``<name>.png`` (300 dpi), ``.pdf`` and ``.svg``, each atomically and free of dates."""

    def save(kind: str, metadata: dict[str, None]) -> Path:
        def write(file: IO[bytes]) -> None:
            figure.savefig(file, format=kind, dpi=300, metadata=metadata)

        return write_atomically(folder / f"{name}.{kind}", write)

    with mpl.rc_context(SETTINGS):
        return [save("png", {}), save("pdf", {"CreationDate": None}), save("svg", {"Date": None})]


def draw_footer(figure: Figure, footer: Sequence[tuple[str, bool]]) -> None:
    """Lines of text at the lower edge, and in bold red those that tell how the run departs from the paper's protocol.

    footer: each line, and whether it tells of a departure; see :func:`sweeps.service.layout.wrap_footer`.
    """
    width, height = figure.get_size_inches()
    for line, (text, departs) in enumerate(footer):
        y = (FOOTER_LINE * (len(footer) - line - 1) + 0.04) / height
        style: dict[str, Any] = {"color": "#9C1C1C", "weight": "bold"} if departs else {"color": "#303030"}
        figure.text(0.06 / width, y, text, size=6.0, va="bottom", **style)
