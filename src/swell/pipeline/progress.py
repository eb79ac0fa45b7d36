"""A line on the terminal while a job of Spark runs: what it does, and how many tasks are done."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PERIOD_S = 0.5


@contextmanager
def shown(what: str, spark: SparkSession | None = None, quiet: bool = False) -> Iterator[None]:
    """Show progress on standard error, if that is a terminal. Without a session: a clock alone."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        line = progress.add_task(what, total=None)
        ended = Event()
        if spark is not None:
            Thread(target=_follow, args=(spark, progress, line, what, ended), daemon=True).start()
        try:
            yield
        finally:
            ended.set()


def _follow(spark: SparkSession, progress: Progress, line: TaskID, what: str, ended: Event) -> None:
    """Ask Spark now and then; when it is gone, so is the question."""
    tracker = spark.sparkContext.statusTracker()
    while not ended.wait(PERIOD_S):
        try:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Exception:
            return
        total = sum(stage.numTasks for stage in stages if stage is not None)
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        if total:
            progress.update(
                line, description=f"{what}: {done}/{total} tasks", completed=done, total=total
            )
