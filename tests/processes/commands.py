"""The command `swell` as a user runs it: as a process, judged by output and exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Any

from swell.cli.target import find_target

SOURCE = Path(__file__).resolve().parents[2] / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "140", "NO_COLOR": "1"}
POLL_S = 0.1


def swell(*words: str | Path, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "swell", *map(str, words)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=timeout_s,
        check=False,
    )


def swell_json(*words: str | Path, timeout_s: float = 60.0) -> Any:
    """Run a command that must succeed; what its JSON says."""
    done = swell(*words, "--json", timeout_s=timeout_s)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def complaint(*words: str | Path, timeout_s: float = 30.0) -> str:
    """Run a command that must fail with one clear line and nothing else; that line."""
    done = swell(*words, timeout_s=timeout_s)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    return errors[0]


def await_condition(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, f"not within {timeout_s} s: {what}"
        time.sleep(POLL_S)


class LocalCluster:
    """A cluster of `swell up`, gone at the end whatever happened."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        self.facts = swell_json("up", "--dir", path, *options)
        self.pids: dict[str, int] = {node["name"]: node["pid"] for node in self.facts["nodes"]}

    def up(self) -> None:
        """Start again what was stopped or killed."""
        self.facts = swell_json("up", "--dir", self.path)
        self.pids = {node["name"]: node["pid"] for node in self.facts["nodes"]}

    def ask(self, command: str, *words: str) -> Any:
        return swell_json(command, *words, "--dir", self.path)

    def graph(self) -> Any:
        """The overlay, without the cost of a process: for checks beside the point of a test."""
        return find_target(self.path, "", "").ask("overlay")

    def address(self, name: str) -> str:
        return str(self.facts["addresses"][name])

    def close(self) -> None:
        swell("down", "--purge", "--dir", self.path)


def running(path: Path, *options: str) -> Iterator[LocalCluster]:
    """For fixtures: a cluster that is taken down at the end."""
    cluster = None
    try:
        cluster = LocalCluster(path, *options)
        yield cluster
    finally:
        swell("down", "--purge", "--dir", path)


class NodeProcess:
    """One `swell node`, and the lines it prints when it is ready."""

    def __init__(self, *words: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "swell", "node", "--json", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self._lines: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def ready(self, event: str, timeout_s: float = 20.0) -> dict[str, Any]:
        """The next line; it must tell of `event`."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except Empty:
            raise AssertionError(f"no line within {timeout_s} s: {event}") from None
        facts: dict[str, Any] = json.loads(line)
        assert facts["event"] == event
        return facts

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
