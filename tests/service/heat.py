"""What is written on a heat map, and whether it can be read."""

from __future__ import annotations

import itertools

from matplotlib.figure import Figure
from matplotlib.text import Text


def texts(figure: Figure, prefix: str) -> dict[str, str]:
    """Texts whose id starts with the prefix, by the rest of the id."""
    found = figure.findobj(lambda artist: isinstance(artist, Text) and (artist.get_gid() or "").startswith(prefix))
    return {text.get_gid().removeprefix(prefix): text.get_text() for text in found}


def check_words_can_be_read(figure: Figure) -> None:
    """No text leaves the page or overlaps another; the last axes are the colour bar's."""
    figure.canvas.draw()
    page = figure.bbox
    boxes = []
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip():
            boxes.append((text.get_text(), text.get_window_extent()))
    bar = figure.axes[-1]
    low, high = bar.get_ylim()
    outside = {tick.label2.get_text() for tick in bar.yaxis.get_major_ticks() if not low <= tick.get_loc() <= high}
    boxes = [(text, box) for text, box in boxes if text not in outside]
    assert len(boxes) > len(texts(figure, "value-")) + 6
    for text, box in boxes:
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, text
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        assert not a.padded(-0.7).overlaps(b.padded(-0.7)), (one, other)
