"""Failures of Spark as one sentence for the user; the stack traces stay in Spark's log.

An error that our own code raised inside a Python worker comes back as text in a Java exception:
its sentence is found there and raised as it was meant.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from swell.errors import SwellError
from swell.pipeline.session import check_packages, log_path

_OURS = re.compile(r"^swell\.[\w.]+Error: (.+)$", re.MULTILINE)
_CLASS = re.compile(r"^\[[A-Z_.]+\] ")
_CONTEXT_LOGGER = "DataFrameQueryContextLogger"
_PY4J_MODULE = "java_gateway"
_SENTENCE_CHARACTERS_MAX = 300


class JobFailedError(SwellError):
    """Spark could not do what a job asked of it."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Whatever Spark raises inside becomes a `SwellError`."""
    check_packages()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    # PySpark writes an error with its context to standard error besides raising it, and Py4J a
    # trace of where Ctrl-C has found it.
    context = PySparkLogger.getLogger(_CONTEXT_LOGGER)
    before, context.disabled = context.disabled, True
    logging.getLogger().addFilter(_is_not_of_py4j)
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise JobFailedError(sentence_of(str(error))) from None
    finally:
        context.disabled = before
        logging.getLogger().removeFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != _PY4J_MODULE


def sentence_of(text: str) -> str:
    """What went wrong, from the text of an exception of Spark."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = _CLASS.sub("", lines[0] if lines else "no reason given")
    if "OutOfMemoryError" in text:
        first = "Spark ran out of memory: give it more with --memory"
    log = log_path()
    where = f" (Spark's log is {log})" if log is not None else ""
    return first[:_SENTENCE_CHARACTERS_MAX].rstrip(".") + where
