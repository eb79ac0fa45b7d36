"""`swell service` on a cluster of real processes: checks of every kind, the library (RIP-23)."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any

import pytest

import swell as library
from swell.cli.target import find_target
from swell.client.blocking import SyncConnection
from swell.errors import UnavailableError
from tests.processes.commands import (
    ENVIRONMENT,
    LocalCluster,
    await_condition,
    complaint,
    running,
    swell_json,
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    yield from running(tmp_path_factory.mktemp("services"), "--nodes", "3", "--sites", "1")


def service(cluster: LocalCluster, *words: str) -> Any:
    return swell_json("service", *words, "--dir", cluster.path)


def connected(cluster: LocalCluster, app: str | None = None) -> SyncConnection:
    target = find_target(cluster.path, "", "")
    return library.connect_sync([*map(str, target.addresses)], cluster=target.cluster, app=app)


def states(client: SyncConnection, name: str) -> dict[str, bool]:
    return {one.id: one.healthy for one in client.service(name).discover()}


class Command:
    """A command that stays, and what it prints."""

    def __init__(self, cluster: LocalCluster, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "swell", "service", *words, "--dir", str(cluster.path)],
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

    def line(self) -> str:
        return self._lines.get(timeout=20.0)

    def end(self, number: int) -> tuple[int, str]:
        """Send a signal; exit code and what it complained of."""
        self.process.send_signal(number)
        code = self.process.wait(20.0)
        self._reader.join()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        with self.process.stdout, self.process.stderr:
            return code, self.process.stderr.read()


@contextmanager
def web(good: threading.Event) -> Iterator[int]:
    """A page /health that answers 200 while `good`, else 503."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if good.is_set() and self.path == "/health" else 503)
            self.end_headers()

        def log_message(self, *words: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_nodes_check_by_tcp_and_http(cluster: LocalCluster) -> None:
    good = threading.Event()
    good.set()
    with web(good) as page, connected(cluster) as client:
        with port() as listening:
            tcp = f"127.0.0.1:{listening}"
            found = service(cluster, "register", "shop", tcp, "--check", "tcp", "--meta", "zone=a")
            assert (found["id"], found["metadata"]) == (tcp, {"zone": "a"})
            web_id = service(
                cluster, "register", "shop", f"127.0.0.1:{page}", "--id", "web",
                "--check", "http:/health", "--weight", "3",
            )["id"]  # fmt: skip
            assert states(client, "shop") == {tcp: True, web_id: True}
            good.clear()
            await_condition(
                lambda: states(client, "shop") == {tcp: True, "web": False},
                15.0,
                "503 is unhealthy",
            )
        good.set()
        await_condition(
            lambda: states(client, "shop") == {tcp: False, "web": True}, 15.0, "a closed port"
        )
        shown = service(cluster, "discover", "shop")
        assert (shown["instances"], shown["healthy"], shown["protected"]) == (2, 1, False)
        assert {one["id"]: one["weight"] for one in shown["list"]} == {tcp: 1.0, "web": 3.0}
        assert {client.service("shop").pick().id for _ in range(5)} == {"web"}
        assert service(cluster, "deregister", "shop", tcp)["removed"] is True
        assert service(cluster, "deregister", "shop", tcp)["removed"] is False
        assert service(cluster, "deregister", "shop", "web")["removed"] is True
        with pytest.raises(UnavailableError, match="no instances"):
            client.service("shop").pick()


def test_a_session_lives_as_long_as_its_process(cluster: LocalCluster) -> None:
    watching = Command(cluster, "watch", "pay", "--json")
    assert json.loads(watching.line())["instances"] == 0
    first = Command(cluster, "register", "pay", "10.0.0.1:80", "--ttl", "2s")
    assert first.line() == "registered 10.0.0.1:80 of pay\n"
    assert [one["id"] for one in json.loads(watching.line())["added"]] == ["10.0.0.1:80"]
    second = Command(cluster, "register", "pay", "10.0.0.2:80", "--ttl", "2s")
    second.line()
    assert json.loads(watching.line())["healthy"] == 2
    rows = {row["service"]: row for row in service(cluster, "list")}
    assert (rows["pay"]["instances"], rows["pay"]["healthy"]) == (2, 2)
    code, complaints = second.end(signal.SIGINT)
    assert (code, complaints) == (0, "removed 10.0.0.2:80 of pay\n")
    assert json.loads(watching.line())["removed"] == ["10.0.0.2:80"]
    first.end(signal.SIGKILL)
    (changed,) = json.loads(watching.line())["changed"]
    assert (changed["id"], changed["healthy"]) == ("10.0.0.1:80", False)
    assert json.loads(watching.line())["removed"] == ["10.0.0.1:80"]
    assert watching.end(signal.SIGINT)[0] == 0


def test_the_later_of_two_wins(cluster: LocalCluster) -> None:
    first = Command(cluster, "register", "solo", "10.0.0.1:80", "--id", "x", "--ttl", "1s")
    first.line()
    second = Command(cluster, "register", "solo", "10.0.0.2:80", "--id", "x", "--ttl", "1s")
    second.line()
    assert first.process.wait(20.0) == 1
    assert "another instance has registered as x of solo" in first.end(signal.SIGINT)[1]
    (only,) = service(cluster, "discover", "solo")["list"]
    assert only["host"] == "10.0.0.2"
    assert second.end(signal.SIGTERM)[0] == 0
    assert service(cluster, "discover", "solo")["list"] == []


def test_protection_is_an_option(cluster: LocalCluster) -> None:
    assert service(cluster, "options", "guarded")["protect"] == 0.0
    assert service(cluster, "options", "guarded", "--protect", "0.5")["protect"] == 0.5
    with connected(cluster) as client, port() as listening:
        guarded = client.service("guarded")
        guarded.register("127.0.0.1", listening, id="up", check="tcp")
        for id in ("down1", "down2"):
            guarded.register("127.0.0.1", 1, id=id, check="tcp")
        await_condition(lambda: guarded.discover().protected, 15.0, "it is protected")
        assert [one.id for one in guarded.discover().usable] == ["down1", "down2", "up"]
        guarded.deregister("down1")
        await_condition(lambda: not guarded.discover().protected, 15.0, "half are healthy")


def test_containers_follow_a_service(cluster: LocalCluster) -> None:
    with (
        connected(cluster, "web") as container,
        connected(cluster) as client,
    ):
        heard = container.service("stock").watch()
        assert len(next(heard).instances) == 0
        client.service("stock").register("10.0.0.1", 80, check="none", metadata={"v": "1"})
        listed = next(heard)
        assert [one.metadata for one in listed.added] == [{"v": "1"}]
        assert container.service("stock").pick().host == "10.0.0.1"
        client.service("stock").register("10.0.0.1", 80, check="none", metadata={"v": "2"})
        assert [one.metadata for one in next(heard).changed] == [{"v": "2"}]
        heard.close()
        assert container.config("@instances", application="stock") is not None


def test_bad_input_gets_one_sentence(cluster: LocalCluster) -> None:
    to = ("--dir", cluster.path)
    assert "no health check" in complaint("service", "register", "a", "h:1", "--check", "x", *to)
    assert "KEY=VALUE" in complaint("service", "register", "a", "h:1", "--meta", "x", *to)
    assert "reserved" in complaint("service", "register", "@a", "h:1", "--check", "none", *to)
    assert "ttl_s" in complaint("service", "register", "a", "h:1", "--ttl", "1ms", *to)
    assert "weight" in complaint("service", "register", "a", "h:1", "--weight", "-1", *to)
    assert "reserved" in complaint("config", "put", "a/@instances", "--text", "x", *to)


def test_a_primary_may_die(cluster: LocalCluster) -> None:
    """Enough services that the node is the primary of some. The last test: the node stays dead."""
    names = [f"tough{n}" for n in range(16)]
    with connected(cluster) as client, connected(cluster) as holder:
        for name in names:
            holder.service(name).register("10.0.0.1", 80, ttl_s=3.0)
        dead = list(cluster.pids)[-1]
        subprocess.run(["kill", "-9", str(cluster.pids[dead])], check=True)
        began = time.monotonic()
        await_condition(lambda: time.monotonic() > began + 8.0, 10.0, "leases would have ended")
        for name in names:
            assert states(client, name) == {"10.0.0.1:80": True}
            history = client.configs(name).history("@instances")
            assert [kept.author for kept in history] == ["10.0.0.1:80"]
    with connected(cluster) as client:
        assert [states(client, name) for name in names] == [{}] * len(names)
