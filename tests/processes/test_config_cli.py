"""`swell config` on a cluster of real processes, with real containers that follow."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

import swell as library
from swell.cli.config import app
from swell.errors import SwellError
from tests.processes.commands import (
    ENVIRONMENT,
    LocalCluster,
    await_condition,
    complaint,
    running,
    swell,
)

UNREACHED = 3
INTERRUPTED = 130


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    yield from running(tmp_path_factory.mktemp("config"), "--nodes", "3", "--sites", "1")


def config(cluster: LocalCluster, *words: str | Path) -> Any:
    """What a command says in JSON; here, without the cost of a process for each."""
    words = (*words, "--dir", cluster.path, "--json")
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    return json.loads(done.stdout)


def refusal(cluster: LocalCluster, *words: str | Path) -> str:
    """The sentence of a command that must fail."""
    with pytest.raises(SwellError) as caught:
        config(cluster, *words)
    return str(caught.value)


def begin(cluster: LocalCluster, *words: str | Path, **environment: str) -> subprocess.Popen[bytes]:
    """A command that goes on by itself."""
    return subprocess.Popen(
        [sys.executable, "-m", "swell", "config", *map(str, words), "--dir", str(cluster.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**ENVIRONMENT, **environment},
    )


def version_of(made: Any) -> int:
    (change,) = made["changes"]
    return int(change["version"])


class Fleet:
    """Containers that follow `limits.json`: the last one rejects a negative rate, and the first
    one says nothing about a rate of zero."""

    def __init__(self, cluster: LocalCluster, application: str, count: int) -> None:
        self._cluster, self._application, self._count = cluster, application, count
        self._thread = Thread(target=lambda: asyncio.run(self._live()), daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._task: asyncio.Task[Any]

    def __enter__(self) -> Fleet:
        self._thread.start()
        place = f"{self._application}/limits.json"

        def all_there() -> bool:
            return len(config(self._cluster, "status", place)["containers"]) == self._count

        await_condition(all_there, 20.0, "every container follows")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(10.0)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._contain_all())
        with suppress(asyncio.CancelledError):
            await self._task

    async def _contain_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for k in range(self._count):
                group.create_task(self._contain(k))

    async def _contain(self, k: int) -> None:
        nodes = [str(address) for address in self._cluster.facts["addresses"].values()]
        client = library.connect(
            nodes, cluster=self._cluster.facts["cluster"], app=self._application, container=f"c{k}"
        )
        async with client:
            async for update in client.watch("limits.json", manual=True):
                rate = update.document.json()["rate"]
                if rate < 0 and k == self._count - 1:
                    await update.rejected("the rate is negative")
                elif rate or k:
                    await update.applied()


def test_a_value_and_its_versions(cluster: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "db.yaml"
    file.write_text("# ours\npool:\n  size: 10  # small\n")
    made = config(cluster, "put", "bank/db.yaml", file, "--author", "ann")
    assert (made["step"], version_of(made), made["changes"][0]["changed"]) == (1, 1, True)
    assert config(cluster, "put", "bank/db.yaml", file)["changes"][0]["changed"] is False
    assert version_of(config(cluster, "set", "bank/db.yaml", "pool.size=20")) == 2
    assert version_of(config(cluster, "set", "bank/db.yaml", "a=1", "pool.max=30")) == 3
    assert version_of(config(cluster, "unset", "bank/db.yaml", "a")) == 4
    got = config(cluster, "get", "bank/db.yaml")
    assert got["value"] == "# ours\npool:\n  size: 20  # small\n  max: 30\n"
    assert config(cluster, "get", "bank/db.yaml", "--path", "pool.size")["value"] == "20"
    assert config(cluster, "get", "bank/db.yaml", "--version", "1")["author"] == "ann"

    versions = config(cluster, "history", "bank/db.yaml")["versions"]
    assert [one["version"] for one in versions] == [1, 2, 3, 4]
    assert versions[1]["base"] == versions[0]["id"]
    lines = config(cluster, "diff", "bank/db.yaml", "1", "2")["lines"]
    assert lines[-2:] == ["-  size: 10  # small", "+  size: 20  # small"]
    assert config(cluster, "diff", "bank/db.yaml", "1", "--file", file)["equal"] is True

    assert version_of(config(cluster, "delete", "bank/db.yaml")) == 5
    assert "was deleted with version 5" in refusal(cluster, "get", "bank/db.yaml")
    assert version_of(config(cluster, "rollback", "bank/db.yaml", "1")) == 6
    out = tmp_path / "out"
    config(cluster, "get", "bank/db.yaml", "-o", out)
    assert out.read_bytes() == file.read_bytes()


def test_bytes_are_written_as_they_are(cluster: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.write_bytes(os.urandom(1024 * 1024))
    assert config(cluster, "put", "bank/value", file)["changes"][0]["bytes"] == 1024 * 1024
    out, _ = begin(cluster, "get", "bank/value").communicate(timeout=30)
    assert out == file.read_bytes()


def test_several_files_are_one_step(cluster: LocalCluster, tmp_path: Path) -> None:
    (tmp_path / "eu").mkdir()
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "eu" / "b.txt").write_text("b")
    made = config(cluster, "put", "many/", tmp_path)
    assert [change["name"] for change in made["changes"]] == ["a.json", "eu/b.txt"]
    assert made["step"] == 1
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "eu" / "b.txt").write_text("c")
    assert "not valid json" in refusal(cluster, "put", "many/", tmp_path)
    assert config(cluster, "get", "many/eu/b.txt")["value"] == "b"
    rows = config(cluster, "list", "many/eu")["configurations"]
    assert [(row["name"], row["version"]) for row in rows] == [("eu/b.txt", 1)]
    applications = config(cluster, "list")["applications"]
    assert {"application": "many", "step": 1, "configurations": 2} in applications


def test_conditions(cluster: LocalCluster) -> None:
    place = "when/a.json"
    config(cluster, "put", place, "--text", "{}", "--if-absent")
    config(cluster, "put", place, "--text", '{"a": 1}', "--if", "1")
    words = ("put", place, "--text", "{}", "--if", "1", "--dir", cluster.path)
    done = swell("config", *words)
    assert done.returncode == 1
    assert "is at version 2" in done.stderr
    assert f"swell config diff {place} 1 2" in done.stderr
    assert "exists already" in refusal(cluster, "put", place, "--text", "1", "--if-absent")
    assert "does not exist" in refusal(cluster, "delete", "when/b", "--if", "3")


def test_bad_input_gets_one_sentence(cluster: LocalCluster, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{\n "a": 1 "b": 2\n}')
    done = swell("config", "put", "shop/a.json", bad, "--dir", cluster.path)
    assert done.returncode == 1
    assert "line 2, column 9" in done.stderr
    assert done.stderr.rstrip().endswith("^")
    config(cluster, "put", "bad/a.json", "--text", '{"a": 1}')
    assert "a is not a mapping" in refusal(cluster, "set", "bad/a.json", "a.b=1")
    assert "has no paths" in refusal(cluster, "set", "bad/a.bin", "a=1")
    assert "not kept" in refusal(cluster, "rollback", "bad/a.json", "9")
    assert "there is no bad/b" in refusal(cluster, "get", "bad/b")
    assert "there is no bad/b" in refusal(cluster, "status", "bad/b")
    assert "has no configuration b" in refusal(cluster, "history", "bad/b")
    assert "b.json of bad does not exist" in refusal(cluster, "unset", "bad/b.json", "a", "c")
    assert "write APP/NAME" in refusal(cluster, "get", "bad")
    assert "segment '..'" in refusal(cluster, "get", "bad/../a")
    assert "as in 30s" in refusal(cluster, "get", "bad/a.json", "--deadline", "3x")
    assert "no node answers" in complaint("config", "list", "--connect", "127.0.0.1:1")


def test_options(cluster: LocalCluster) -> None:
    config(cluster, "put", "opt/a", "--text", "1")
    assert config(cluster, "options", "opt") == {
        "application": "opt", "relaying": True, "versions_kept": 0,
    }  # fmt: skip
    now = config(cluster, "options", "opt", "--relaying", "off", "--keep", "3")
    assert (now["relaying"], now["versions_kept"]) == (False, 3)


def test_a_fleet_is_waited_for(cluster: LocalCluster) -> None:
    place = "fleet/limits.json"
    config(cluster, "put", place, "--text", '{"rate": 1}')
    with Fleet(cluster, "fleet", 6):
        waited = config(cluster, "set", place, "rate=2", "--wait", "applied")["wait"]
        assert (waited["complete"], waited["applied"], waited["containers"]) == (True, 6, 6)

        done = swell("config", "set", place, "rate=-1", "--wait", "applied", "--dir", cluster.path)
        assert done.returncode == UNREACHED, done.stderr
        assert "applied by 5 of 6 containers" in done.stdout
        assert "the rate is negative" in done.stdout
        assert done.stderr == ""

        silent = swell(
            "config", "set", place, "rate=0", "--wait", "applied", "--deadline", "1s", "--json",
            "--dir", cluster.path,
        )  # fmt: skip
        assert silent.returncode == UNREACHED
        unreached = json.loads(silent.stdout)["wait"]["unreached"]
        assert [(one["container"], one["state"]) for one in unreached] == [("c0", "delivered")]
        assert config(cluster, "set", place, "rate=0.0", "--wait", "delivered")["wait"]["complete"]

        def applied() -> dict[str, bool]:
            containers = config(cluster, "status", place)["containers"]
            return {one["container"]: one["applied"] for one in containers}

        wanted = {f"c{k}": k > 0 for k in range(6)}
        await_condition(lambda: applied() == wanted, 10.0, "the status tells who has applied it")


def test_ctrl_c_while_waiting_says_what_is_stored(cluster: LocalCluster) -> None:
    place = "patience/limits.json"
    config(cluster, "put", place, "--text", '{"rate": 1}')
    with Fleet(cluster, "patience", 2):
        command = begin(cluster, "set", place, "rate=0", "--wait", "applied")
        assert command.stdout is not None
        assert b"version 2" in command.stdout.readline()
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=20)
    assert command.returncode == INTERRUPTED
    assert errors == f"stopped waiting; stored and on its way: {place} as version 2\n".encode()


def test_a_terminal_sees_a_bar(cluster: LocalCluster) -> None:
    place = "bar/limits.json"
    config(cluster, "put", place, "--text", '{"rate": 1}')
    with Fleet(cluster, "bar", 3):
        ours, theirs = pty.openpty()
        words = ["set", place, "rate=2", "--wait", "applied", "--dir", str(cluster.path)]
        command = subprocess.run(
            [sys.executable, "-m", "swell", "config", *words],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**ENVIRONMENT, "TERM": "xterm"},
            timeout=30,
            check=True,
        )
        os.close(theirs)
        seen = os.read(ours, 65536).decode()
        os.close(ours)
    assert "3/3 applied" in seen
    assert "━" in seen
    assert b"applied by 3 of 3 containers" in command.stdout


def test_watching(cluster: LocalCluster) -> None:
    place = "seen/a.json"
    config(cluster, "put", place, "--text", '{"a": 1}\n')
    command = begin(cluster, "watch", place, "--json")
    assert command.stdout is not None
    first = json.loads(command.stdout.readline())
    assert (first["version"], first["lines"]) == (1, [])
    config(cluster, "set", place, "a=2")
    second = json.loads(command.stdout.readline())
    assert second["lines"][-2:] == ['-{"a": 1}', '+{"a": 2}']
    config(cluster, "delete", place)
    assert json.loads(command.stdout.readline())["deleted"] is True
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate(timeout=20)
    assert (command.returncode, errors) == (0, b"stopped watching\n")
    # It has left: nobody waits for it.
    waited = config(cluster, "put", place, "--text", "3", "--wait", "applied")["wait"]
    assert waited["containers"] == 0


def test_editing(cluster: LocalCluster, tmp_path: Path) -> None:
    place = "edited/a.json"
    config(cluster, "put", place, "--text", '{"a": 1}')

    def edit(script: str) -> tuple[int, str, str]:
        editor = tmp_path / "editor"
        editor.write_text(f"#!/bin/sh\n{script}\n")
        editor.chmod(0o755)
        words = ("edit", place)
        command = begin(cluster, *words, EDITOR=str(editor), VISUAL="", TMPDIR=str(tmp_path))
        out, errors = command.communicate(timeout=30)
        return command.returncode, out.decode(), errors.decode()

    code, out, _ = edit("""printf '{"a": 2}' > "$1" """)
    assert (code, "is at version 2" in out) == (0, True)
    assert edit("true")[2] == f"{place} was not changed\n"
    assert not [*tmp_path.glob("swell-*")]

    code, _, errors = edit("""printf '{"a": ' > "$1" """)
    assert (code, "not valid json" in errors) == (1, True)
    other = f"{sys.executable} -m swell config set {place} a=7 --dir {cluster.path}"
    code, _, errors = edit(f"""{other}; printf '{{"a": 3}}' > "$1" """)
    assert (code, "is at version 3" in errors) == (1, True)
    kept = sorted(path.read_text() for path in tmp_path.glob("swell-*/a.json"))
    assert kept == ['{"a": ', '{"a": 3}']
    assert "your text is in" in errors
    assert config(cluster, "get", place)["value"] == '{"a": 7}'

    code, _, errors = edit("exit 4")
    assert (code, "ended with 4" in errors) == (1, True)
