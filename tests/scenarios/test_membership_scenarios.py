"""Plays `membership_*.txt`: what happens to members, and every change of a view that follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.events import Event, MemberAlive, MemberDead, MemberSuspected
from tests.scenarios.script import check, commands_of, scripts
from tests.simulation.zone import Zone

SCENARIOS = scripts("membership")


def play(commands: str) -> str:
    """Run the commands and return the trace."""
    zone: Zone | None = None
    lines: list[str] = []
    shown = 0
    for line, verb, words in commands_of(commands):
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
    check(path, play)


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 3
