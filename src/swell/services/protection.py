"""What health checks change in a list, and when they may not remove (RIP-23).

A list with too few healthy instances is protected: it is more likely that the checks are wrong, or
that everything is overloaded, than that a shorter list would help. Nothing is removed from it, and
clients use all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from swell.config.edits import LINES_MAX, Line
from swell.services.instances import PROTECTED, Instances
from swell.services.subjects import Subject


class Verdict(NamedTuple):
    """About an instance, or with an empty id about the list."""

    id: str
    what: str


class Findings(NamedTuple):
    """Lines to be changed, and what they mean."""

    lines: tuple[Line, ...]
    verdicts: tuple[Verdict, ...]


def is_protected(protect: float, healthy: int, count: int) -> bool:
    """Whether a list with so many healthy instances is to be left alone."""
    return protect > 0.0 and count > 0 and (not healthy or healthy < protect * count)


def findings(
    instances: Instances, news: Iterable[Subject], protect: float, wall_s: int
) -> Findings:
    """How the list follows the subjects whose state is news: first what is unhealthy, removals
    after that. A line changes only if it still is what the finding was made for."""
    lines: list[Line] = []
    verdicts: list[Verdict] = []
    gone = []
    healthy = instances.healthy
    for subject in news:
        instance = subject.instance
        if subject.healthy != instance.healthy:
            healthy += 1 if subject.healthy else -1
            changed = replace(instance, healthy=subject.healthy, since=wall_s)
            lines.append(changed.line(only=instance.text))
            verdicts.append(Verdict(instance.id, "healthy" if subject.healthy else "unhealthy"))
        elif subject.gone:
            gone.append(instance)
    protected = is_protected(protect, healthy, len(instances))
    if not protected:
        lines += [Line(instance.id, None, instance.text) for instance in gone]
        verdicts += [Verdict(instance.id, "removed") for instance in gone]
    del lines[LINES_MAX - 1 :], verdicts[LINES_MAX - 1 :]
    if protected != instances.protected:
        lines.append(Line(PROTECTED, str(wall_s) if protected else None))
        verdicts.append(Verdict("", "protected" if protected else "unprotected"))
    return Findings(tuple(lines), tuple(verdicts))
