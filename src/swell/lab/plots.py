"""Figures of experiments: one look for all, written as PNG without a display."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swell.lab.experiment import Lab


@contextmanager
def figure(lab: Lab, name: str, title: str, x: str, y: str) -> Iterator[Axes]:
    """One set of axes; saved as `name`.png when the block ends."""
    canvas = Figure(figsize=(9.5, 5), dpi=120, layout="constrained")
    axes = canvas.add_subplot()
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    yield axes
    if axes.get_legend_handles_labels()[1]:
        canvas.legend(loc="outside right upper", fontsize="small")
    canvas.savefig(lab.plot(name))
