"""Worlds as processes of their own: signals, locks, ports, kill -9."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swell.wire.codec import frame
from swell.wire.limits import MAGIC
from tests.unit.runtime_toys import ECHO, HOST

ROOT = Path(__file__).resolve().parents[2]
HELLO = frame(ECHO, b"hello")


@contextmanager
def node_process(data_dir: Path, name: str = "n", port: int = 0) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    arguments = [sys.executable, "-m", "tests.unit.runtime_toys", name, str(data_dir), str(port)]
    with subprocess.Popen(
        arguments,
        env=environment,
        cwd=data_dir.parent,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def port_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    word, port = process.stdout.readline().split()
    assert word == "ready"
    return int(port)


def echo(sock: socket.socket) -> bytes:
    sock.sendall(MAGIC + HELLO)
    received = b""
    while len(received) < len(MAGIC + HELLO):
        received += sock.recv(100)
    return received


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with node_process(tmp_path / "d") as process:
        with socket.create_connection((HOST, port_of(process)), timeout=10) as sock:
            assert echo(sock) == MAGIC + HELLO
            process.send_signal(number)
            assert sock.recv(100) == b""
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_a_peer_that_never_closes_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with (
        node_process(tmp_path / "d") as process,
        socket.create_connection((HOST, port_of(process)), timeout=10) as sock,
    ):
        assert echo(sock) == MAGIC + HELLO
        began_s = time.monotonic()
        process.terminate()
        assert process.wait(10) == 0
        assert time.monotonic() - began_s < 6


def test_a_node_that_halts_itself_exits_with_1(tmp_path: Path) -> None:
    with node_process(tmp_path / "d", "halting") as process:
        port_of(process)
        assert process.wait(10) == 1


def test_two_processes_on_one_directory(tmp_path: Path) -> None:
    with node_process(tmp_path / "d") as first:
        port_of(first)
        with node_process(tmp_path / "d") as second:
            assert second.wait(10) == 3
            assert second.stderr is not None
            errors = second.stderr.read()
        assert "is in use by another process" in errors
        assert "Traceback" not in errors
        first.kill()
    with node_process(tmp_path / "d") as third:
        assert port_of(third) > 0


def test_a_port_in_use_is_one_clear_error(tmp_path: Path) -> None:
    with node_process(tmp_path / "a", "a") as first:
        port = port_of(first)
        with node_process(tmp_path / "b", "b", port) as second:
            assert second.wait(10) == 3
            assert second.stderr is not None
            errors = second.stderr.read()
    assert f"port {port} on {HOST} is in use" in errors
    assert "Traceback" not in errors


def test_a_directory_of_another_node_is_one_clear_error(tmp_path: Path) -> None:
    with node_process(tmp_path / "d", "a") as first:
        port_of(first)
        first.kill()
        first.wait(10)
    with node_process(tmp_path / "d", "b") as second:
        assert second.wait(10) == 3
        assert second.stderr is not None
        assert "belongs to node 'a'" in second.stderr.read()
