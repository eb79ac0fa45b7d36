"""Which of its lives the rows of a container are of, whatever became of its snapshot."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import pytest

import swell
from swell.errors import UnavailableError
from tests.unit.runtime_toys import run
from tests.unit.test_events_log import rows_in

NOBODY = "127.0.0.1:1"


def test_lives_of_a_container_grow_with_and_without_a_snapshot(tmp_path: Path) -> None:
    events, kept = tmp_path / "events", tmp_path / "snapshot"

    async def live(snapshot: Path | None) -> None:
        place = {"app": "shop", "container": "c1", "snapshot": snapshot, "relay": False}
        with pytest.raises(UnavailableError):
            async with swell.connect(NOBODY, events=events, deadline_s=0.05, **place):
                pass

    async def main() -> None:
        for snapshot in (None, kept, kept, None, kept):
            await live(snapshot)
        rmtree(kept)
        await live(kept)

    run(main)
    rows = rows_in(events)
    lives = sorted({row["start"] for row in rows})
    assert [(row["start"], row["row"]) for row in rows] == [
        (start, number) for start in lives for number in (1, 2)
    ]
    assert len(lives) == 6
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
