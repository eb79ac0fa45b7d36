"""Logging of the runtime: structlog to standard error, one line per event."""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec
import structlog

from swell.events import (
    Event,
    MemberDead,
    MemberSuspected,
    Started,
    ThresholdIgnored,
    ThresholdsFollowed,
)

_LEVELS: dict[type[Event], int] = {
    Started: logging.INFO,
    MemberSuspected: logging.INFO,
    MemberDead: logging.WARNING,
    ThresholdsFollowed: logging.INFO,
    ThresholdIgnored: logging.WARNING,
}
"""Events not named here are for debugging: some occur once per message."""


def configure_logging(level: str = "info", json: bool = False) -> None:
    """Set the form of all log lines of this process. Standard output stays the command's own."""
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if json else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def logger_of(node: str) -> Any:
    """The logger of one node; every line carries its name."""
    return structlog.get_logger().bind(node=node)


def log_event(log: Any, event: Event) -> None:
    level = _LEVELS.get(type(event), logging.DEBUG)
    if log.is_enabled_for(level):
        log.log(level, type(event).__name__, **msgspec.structs.asdict(event))


def events_logged(log: Any) -> frozenset[type[Event]] | None:
    """The events that this logger shows; None: all of them. Asked once, so that events that
    nobody sees cost next to nothing."""
    if log.is_enabled_for(logging.DEBUG):
        return None
    return frozenset(event for event, level in _LEVELS.items() if log.is_enabled_for(level))
