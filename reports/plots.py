"""Learning curves as a picture: mean over seeds, with their range as a band. Needs matplotlib (the extra `plots`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from reports.curves import Curves

FORMATS = (".svg", ".png", ".pdf")

_COLUMNS = 3
_PANEL = (3.4, 2.3)
"""Width and height of a panel in inches."""


def plot_curves(curves: Curves, names: Sequence[str], path: Path, *, title: str) -> None:
    """Draw one panel a metric into a file; equal curves give equal SVG files.

    Args:
        curves: of at least one seed.
        names: metrics, of `Curves.names`.
        path: ends in one of FORMATS.
        title: above the panels.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: another ending.
        OSError: the file cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f'"{path.name}" must end in {", ".join(FORMATS)}')
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    several = len(curves.seeds) > 1
    columns = min(_COLUMNS, len(names))
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for panel, name in zip(panels, names, strict=False):
        points = zip(curves.iterations, curves.points(name), strict=True)
        places = [(iteration, point) for iteration, point in points if point is not None]
        iterations = [iteration for iteration, _ in places]
        panel.plot(iterations, [point.mean for _, point in places], linewidth=1.2)
        if several:
            panel.fill_between(
                iterations, [point.low for _, point in places], [point.high for _, point in places], alpha=0.25
            )
        panel.set_title(name, fontsize=9)
        panel.tick_params(labelsize=7)
        panel.set_xlabel("iteration", fontsize=7)
    for panel in list(figure.axes)[len(names) :]:
        panel.set_visible(False)
    seeds = f"mean and range of {len(curves.seeds)} seeds" if several else f"seed {next(iter(curves.seeds))}"
    figure.suptitle(f"{title}: {seeds}", fontsize=10)
    with rc_context({"svg.hashsalt": title}):  # ids of an SVG are random without it
        # a date would make two drawings of the same curves differ; PNG has no such field
        figure.savefig(path, metadata=None if path.suffix.lower() == ".png" else _undated(path))


def _undated(path: Path) -> dict[str, None]:
    return {"Date": None} if path.suffix.lower() == ".svg" else {"CreationDate": None}
