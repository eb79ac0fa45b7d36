"""Plays `membership_*.txt`: commands, then the whole trace of view changes that they must cause.

Lines below `---` are the trace. `SWELL_REWRITE=1` writes them anew; review the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swell.events import Event, MemberAlive, MemberDead, MemberSuspected
from tests.simulation.zone import Zone

SCENARIOS = sorted(Path(__file__).parent.glob("membership_*.txt"))
RULE = "---\n"


def play(commands: str) -> str:
    """Run the commands and return the trace."""
    zone: Zone | None = None
    lines: list[str] = []
    shown = 0
    for line in commands.splitlines():
        verb, *words = line.split() or ["#"]
        if verb == "#":
            continue
        if verb == "zone":
            zone = Zone(seed=int(words[2]), size=int(words[0]))
            continue
        assert zone is not None, "a scenario begins with its zone"
        lines.append(f"{zone.simulation.time_s:8.3f}  > {line}")
        act(zone, verb, words[0])
        lines += [told(*item) for item in zone.events[shown:]]
        shown = len(zone.events)
    return "\n".join(lines) + "\n"


def act(zone: Zone, verb: str, argument: str) -> None:
    if verb == "run":
        zone.simulation.run_for(float(argument))
        return
    process = zone.process(int(argument))
    {
        "power": lambda: process.crash(power=True),
        "kill": process.crash,
        "pause": process.pause,
        "resume": process.resume,
        "start": process.start,
        "leave": lambda: zone.leave(process.number),
    }[verb]()


def told(time_s: float, observer: int, event: Event) -> str:
    assert isinstance(event, MemberAlive | MemberSuspected | MemberDead)
    word = {MemberAlive: "alive", MemberSuspected: "suspect", MemberDead: "dead"}[type(event)]
    if isinstance(event, MemberDead) and event.left:
        word = "left"
    return f"{time_s:8.3f}  {observer}: {event.member} epoch {event.epoch} {word}"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    commands, _, expected = path.read_text().partition(RULE)
    trace = play(commands)
    if os.environ.get("SWELL_REWRITE"):
        path.write_text(commands + RULE + trace)
        return
    assert trace == expected


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 3
