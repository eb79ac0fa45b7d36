"""Spark's Python workers: what every task of ours does first.

A worker looks for garbage after each task, through everything that it has ever imported: with Arrow
and Spark loaded that was 50 ms, more than reading 100,000 rows. What is there when the first task
begins stays for good, so it is set aside, and later searches go through what is new.
"""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


def begin_task() -> None:
    """To be called with all modules imported; does nothing outside of a worker."""
    if TaskContext.get() is not None:
        _set_aside()


@cache
def _set_aside() -> None:
    gc.collect()
    gc.freeze()
