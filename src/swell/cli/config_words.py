"""Numbers, times, ids and values of configurations in the words that people and programs read.

For people: sizes in B, KiB and MiB, local times, ids as ten digits, nothing that could command a
terminal. For programs: bytes, UTC, whole ids. The field names here are the ones that every
command's JSON has.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from swell.client.values import Publication, Value
from swell.config.operations import ApplicationRow, Kept, Row
from swell.config.reports import Awaited, Named, State, StatusReport, StatusRow
from swell.config.versions import Kind

ID_DIGITS = 10

CLASSES = ("applied", "delivered", "rejected", "silent", "failed", "offline")
"""Every interested container is in one of them, as far as a step goes."""

STATES = {
    State.IN_STEP: "in step",
    State.BEHIND: "behind",
    State.FAILED: "failed",
    State.OFFLINE: "offline",
}
KINDS = {Kind.WHOLE: "whole", Kind.DELTA: "delta", Kind.DELETE: "delete", Kind.FETCH: "whole"}


# For people.


def size_words(count: int) -> str:
    """512 B, 1.5 KiB, 100.0 MiB."""
    if count < 1024:
        return f"{count} B"
    if count < 1024 * 1024:
        return f"{count / 1024:.1f} KiB"
    return f"{count / (1024 * 1024):.1f} MiB"


def id_words(id: bytes) -> str:
    return id.hex()[:ID_DIGITS]


def time_words(wall_us: int) -> str:
    """The local time."""
    return datetime.fromtimestamp(wall_us / 1e6).strftime("%Y-%m-%d %H:%M:%S")


def span_words(seconds: float) -> str:
    """12 ms, 1.5 s, 12 s, 3 m 20 s, 2 h 5 m, 4 d 1 h."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit_s, unit, part_s, part in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m")):
        if whole >= unit_s:
            return f"{whole // unit_s} {unit} {whole % unit_s // part_s} {part}"
    return f"{whole // 60} m {whole % 60} s" if whole >= 60 else f"{whole} s"


def readable(text: str) -> str:
    """The text with everything escaped that does not print."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape", "replace").decode()
        for sign in text
    )


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


# For programs.


def time_json(wall_us: int) -> str:
    return datetime.fromtimestamp(wall_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def data_json(data: bytes) -> dict[str, str]:
    """A value as text if it is text, else in base64."""
    try:
        return {"value": data.decode(), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"value": base64.b64encode(data).decode(), "encoding": "base64"}


def publications_json(application: str, made: Sequence[Publication]) -> dict[str, Any]:
    return {
        "application": application,
        "step": made[0].step,
        "changes": [
            {
                "name": one.name,
                "version": one.version,
                "id": one.id.hex(),
                "bytes": one.length,
                "changed": one.changed,
            }
            for one in made
        ],
    }


def value_json(application: str, value: Value) -> dict[str, Any]:
    """Everything about a version except its bytes."""
    return {
        "application": application,
        "name": value.name,
        "version": value.version,
        "id": value.id.hex(),
        "step": value.step,
        "bytes": value.length,
        "author": value.author,
        "time": time_json(value.wall_us),
        "deleted": value.deleted,
    }


def applications_json(rows: Sequence[ApplicationRow]) -> dict[str, Any]:
    return {
        "applications": [
            {"application": row.name, "step": row.step, "configurations": row.configurations}
            for row in rows
        ]
    }


def list_json(application: str, rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "application": application,
        "configurations": [
            {
                "name": row.name,
                "version": row.version,
                "id": row.id.hex(),
                "bytes": row.length,
                "author": row.author,
                "time": time_json(row.wall_us),
            }
            for row in rows
        ],
    }


def history_json(application: str, name: str, versions: Sequence[Kept]) -> dict[str, Any]:
    return {
        "application": application,
        "name": name,
        "versions": [
            {
                "version": kept.version,
                "id": kept.id.hex(),
                "base": kept.base.hex(),
                "step": kept.step,
                "kind": KINDS[Kind(kept.kind)],
                "change_bytes": kept.change_bytes,
                "bytes": kept.length,
                "author": kept.author,
                "time": time_json(kept.wall_us),
            }
            for kept in versions
        ],
    }


def report_json(level: str, report: Awaited) -> dict[str, Any]:
    """How waiting ended: the counts, and who has not reached the level."""
    counts = {name: getattr(report, name).count for name in CLASSES}
    return {
        "level": level,
        "complete": report.complete,
        "reached": reached(level, report),
        "containers": report.interested,
        **counts,
        "unreached": [
            {
                "container": named.container,
                "state": name,
                "reason": named.reason,
                "offline_s": named.since_s,
            }
            for name, named in unreached(level, report)
        ],
    }


def status_json(application: str, name: str, report: StatusReport) -> dict[str, Any]:
    return {
        "application": application,
        "name": name,
        "step": report.step,
        "version": report.version,
        "containers": [
            {
                "container": row.container,
                "application": row.owner,
                "site": row.site,
                "state": STATES[State(row.state)].replace(" ", "-"),
                "version": row.version,
                "applied": has_newest(row, report),
                "applied_step": row.applied,
                "delivered_step": row.delivered,
                "since_s": row.since_s,
                "relay": row.relay,
                "score": row.score,
                "avoided": row.avoided,
                "reason": row.reason,
            }
            for row in report.rows
        ],
    }


# Who has it.


def has_newest(row: StatusRow, report: StatusReport) -> bool:
    """Whether a container has applied the present version."""
    return row.version == report.version and row.version > 0


def reached(level: str, report: Awaited) -> int:
    """How many containers have reached the level. Whoever rejected the step has not."""
    applied = report.applied.count
    return applied + report.delivered.count if level == "delivered" else applied


def all_reached(level: str, report: Awaited) -> bool:
    """Whether nobody is missing, and nobody is waited for any more."""
    return report.complete and reached(level, report) == report.interested


def unreached(level: str, report: Awaited) -> list[tuple[str, Named]]:
    """(class, container) of those that have not, as far as they are named."""
    classes = [name for name in CLASSES[1:] if not (level == "delivered" and name == "delivered")]
    return [(name, named) for name in classes for named in getattr(report, name).names]
