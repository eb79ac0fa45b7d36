"""The root command: fast, complete, and polite about errors."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from io import RawIOBase, TextIOWrapper

import pytest
import typer

from swell import __version__
from swell.cli import main as cli
from swell.cli import tables
from swell.errors import ConfigurationError

HEAVY = ("numpy", "scipy", "matplotlib", "cryptography", "uvloop", "asyncio")


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    """Run the command in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["swell", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Put a command `broken` into the table."""

    def broken() -> None:
        raise error

    monkeypatch.setattr(cli, "broken", broken, raising=False)
    monkeypatch.setitem(cli.COMMANDS, "broken", cli.Command(cli.__name__, "broken", "Breaks."))


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_can_be_loaded(name: str) -> None:
    command = cli.COMMANDS[name]
    target = getattr(import_module(command.module), command.attribute)
    assert callable(target)
    typer.main.get_command(cli.build(name))


def test_help_lists_all_commands_and_imports_nothing_heavy() -> None:
    script = (
        "import sys; sys.argv = ['swell', '--help']\n"
        "from swell.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as ended: assert not ended.code\n"
        f"print('HEAVY', [name for name in {HEAVY} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path), "COLUMNS": "120"},
    )
    for name in cli.COMMANDS:
        assert f" {name} " in done.stdout
    assert "HEAVY []" in done.stdout


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert not run(monkeypatch, "--version")
    assert capsys.readouterr().out == f"swell {__version__}\n"


def test_error_is_one_line_without_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, ConfigurationError("port 7000 is in use:\nchoose another [red]"))
    assert run(monkeypatch, "broken") == 1
    captured = capsys.readouterr()
    assert captured.err == "error: port 7000 is in use: choose another [red]\n"
    assert captured.out == ""


def test_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    assert run(monkeypatch, "broken") == 130


def test_unknown_command_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "no-such-command") == 2


class Narrow(RawIOBase):
    """Takes a few bytes at a time, as a pipe may."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: memoryview) -> int:  # type: ignore[override]
        self.taken += bytes(data[:3])
        return min(3, len(data))


def test_all_of_a_value_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = Narrow()
    stdout = TextIOWrapper(narrow, write_through=True)  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdout", stdout)
    tables.write(b"0123456789")
    tables.print_json({"a": 1})
    assert narrow.taken == b'0123456789{\n  "a": 1\n}\n'
