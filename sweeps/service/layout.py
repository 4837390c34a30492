"""Where the parts of the sensitivity figure are, in inches: text has room whatever the data look like."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from sweeps.service.notes import is_departure

WIDTH = 7.0
"""Width of a figure of three or more panels side by side."""

_WIDE_COLUMNS = 3
"""Most columns whose cells are wide enough for a legend."""

_MOST_COLUMNS = 5

_LEFT, _RIGHT, _GAP = 0.66, 0.06, 0.13
_AXES_HEIGHT, _BELOW_AXES = 1.45, 0.33
_LEGEND_LINE = 0.15
FOOTER_LINE = 0.115
"""Height of a line of text below the panels."""
MARK_LINE = 0.095
"""Height of a row of marks above a panel."""


def wrap_footer(texts: Sequence[str], width: float) -> tuple[tuple[str, bool], ...]:
    """Lines of text for below a figure of that width, and whether each tells of a departure from the paper's protocol.

    The first text explains the figure, the others are :func:`sweeps.service.notes.protocol_notes`.
    """
    lines: list[tuple[str, bool]] = []
    for number, text in enumerate(texts):
        departs = number > 0 and is_departure(text)
        lines += [(line, departs) for line in textwrap.wrap(text, int(width * (20 if departs else 23)))]
    return tuple(lines)


@dataclass(frozen=True)
class Layout:
    """Where things are, in inches."""

    width: float
    height: float
    columns: int
    rows: int
    strip: float
    """Room above each panel for the marks of several data sets."""
    above: float
    """Room above that for the panel's letter."""
    bottom: float
    legend_in_grid: bool
    """Whether the legend fills the free last cell of the grid rather than a line above it."""
    legend_columns: int
    footer: tuple[tuple[str, bool], ...]
    """Lines of text, and whether each tells of a departure from the protocol."""

    @classmethod
    def of(
        cls,
        n_panels: int,
        n_datasets: int,
        n_entries: int,
        footer: Sequence[str],
        *,
        columns: int | None = None,
        width: float | None = None,
        below: float = 0.0,
    ) -> Layout:
        """Layout for so many panels, data sets and legend entries; the first footer text is the key of the marks.

        columns, width: by default what suits the paper's panels.  below: room between panels and footer, in inches.
        """
        if columns is None:
            # Many lines need wide panels: then three columns, and the legend in the cell that five panels leave free.
            columns = 3 if n_datasets > 2 and n_panels > 3 else n_panels
        rows = math.ceil(n_panels / columns)
        width = width or {1: 3.4, 2: 5.0}.get(columns, WIDTH)
        lines = wrap_footer(footer, width)
        strip = 0.0 if n_datasets == 1 else MARK_LINE * n_datasets + 0.05
        bottom = FOOTER_LINE * len(lines) + 0.08 + below
        legend_in_grid = rows * columns > n_panels and columns <= _WIDE_COLUMNS
        legend_columns = 2 if legend_in_grid else min(n_entries, int(width / 1.15))
        legend = 0.0 if legend_in_grid or not n_panels else _LEGEND_LINE * math.ceil(n_entries / legend_columns) + 0.05
        above = 0.17 if n_panels > 1 or below else 0.04
        height = bottom + rows * (_BELOW_AXES + _AXES_HEIGHT + strip + above) + legend
        return cls(width, height, columns, rows, strip, above, bottom, legend_in_grid, legend_columns, lines)

    def is_first_column(self, number: int) -> bool:
        """Whether cell `number` carries the y labels of its row."""
        return number % self.columns == 0

    @property
    def axes_width(self) -> float:
        """Width of one panel."""
        return (self.width - _LEFT - _RIGHT - _GAP * (self.columns - 1)) / self.columns

    def axes(self, number: int) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of cell `number`, as fractions of the figure."""
        row, column = divmod(number, self.columns)
        left = _LEFT + column * (self.axes_width + _GAP)
        cell = _BELOW_AXES + _AXES_HEIGHT + self.strip + self.above
        bottom = self.bottom + (self.rows - 1 - row) * cell + _BELOW_AXES
        return left / self.width, bottom / self.height, self.axes_width / self.width, _AXES_HEIGHT / self.height


def columns_for(n_panels: int, fewest_inches: float, n_datasets: int) -> int:
    """Columns of a grid of panels that need so much width each: few rows, filled as evenly as can be."""
    room = WIDTH - _LEFT - _RIGHT + _GAP
    most = min(_MOST_COLUMNS, max(1, int(room / (fewest_inches + _GAP))))
    if n_datasets > 2:
        most = min(most, _WIDE_COLUMNS)
    return math.ceil(n_panels / math.ceil(n_panels / most))


def flow(sizes: Sequence[tuple[float, float]], width: float) -> tuple[list[tuple[float, float]], float]:
    """Left and top of boxes (width, height) that follow one another like words on a page, and the height of all."""
    places, left, top, line = [], 0.0, 0.0, 0.0
    for box_width, box_height in sizes:
        if left and left + box_width > width:
            left, top, line = 0.0, top + line, 0.0
        places.append((left, top))
        left, line = left + box_width, max(line, box_height)
    return places, top + line
