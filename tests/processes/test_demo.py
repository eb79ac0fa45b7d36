"""`swell demo`, which is what `make run` shows: it works, ends by itself and leaves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.commands import ENVIRONMENT, swell

pytestmark = pytest.mark.slow


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENT, "TMPDIR", str(tmp_path))
    done = swell("demo", timeout_s=60.0)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for words in (
        "8 nodes in 2 sites",
        "8 nodes reached in at most 3 hops, 0 duplicates",
        "dead after",
        "linked anew",
        "is back after",
        "stopped and cleaned up",
    ):
        assert words in done.stdout
    assert list(tmp_path.iterdir()) == []
