"""`swell.connect` and `swell.connect_sync` over real connections to nodes that are toys."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from threading import Event, Thread

import pytest

import swell
from swell.client.store_session import Notice
from swell.errors import (
    ConfigurationError,
    InvalidKeyError,
    OutcomeUnknownError,
    RefusedError,
    TooLargeError,
    UnavailableError,
)
from swell.overlay.contact import Contact
from swell.runtime.world import RuntimeWorld
from tests.unit.store_toys import CLUSTER, SLOTS, ToyNode, ToyStore, serve


@contextlib.asynccontextmanager
async def serving(store: ToyStore, nodes: int = 2) -> AsyncIterator[str]:
    """Toy nodes on loopback; where they listen."""
    worlds = []
    for number in range(1, nodes + 1):
        world = RuntimeWorld(f"n{number}", None, cluster=CLUSTER)
        worlds.append(world)
        address = world.listen("127.0.0.1", 0)
        contact = Contact(number, world.name, "a", "", 1, *address, 1)
        world.start(ToyNode(world, store, contact))
    try:
        yield ",".join(str(contact.address) for contact in store.contacts.values())
    finally:
        for world in worlds:
            await world.stop()


def test_all_operations() -> None:
    async def scenario() -> None:
        store = ToyStore()
        store.primaries = [1 + slot % 2 for slot in range(SLOTS)]
        async with serving(store) as nodes, swell.connect(nodes, cluster=CLUSTER) as client:
            dht = client.dht()
            await dht.put("a", b"1")
            assert await dht.get("a") == b"1"
            assert await dht.get("a", stale=True) == b"1"
            assert await dht.read("a", stale=True) == (b"1", True)
            assert await dht.put_and_retrieve("a", b"2") == b"1"
            assert await dht.contains("a")
            assert not await dht.put_if_absent("a", b"3")
            assert await dht.replace("a", b"3") == b"2"
            assert not await dht.replace_if("a", b"2", b"4")
            assert await dht.replace_if("a", b"3", b"4")
            assert not await dht.remove("a", b"3")
            assert await dht.remove("a", b"4")
            assert not await dht.remove("a")
            assert await dht.get("a") is None
            assert await dht.replace("a", b"5") is None
            assert await dht.put_and_retrieve("a", b"x" * 1024 * 1024) is None
            assert await dht.get("a") == b"x" * 1024 * 1024
            keys = [f"k{k}" for k in range(500)]
            await asyncio.gather(*(dht.put(key, key.encode()) for key in keys))
            assert await asyncio.gather(*map(dht.get, keys)) == [key.encode() for key in keys]

    asyncio.run(scenario())


def test_bad_input_is_told_before_anything_is_sent() -> None:
    async def scenario() -> None:
        store = ToyStore()
        async with serving(store) as nodes, swell.connect(nodes, cluster=CLUSTER) as client:
            dht = client.dht()
            with pytest.raises(InvalidKeyError):
                await dht.put("a/../b", b"")
            with pytest.raises(TooLargeError):
                await dht.put("a", bytes(1024 * 1024 + 1))
            with pytest.raises(ConfigurationError):
                await dht.get("a", deadline_s=0.0)
            assert store.heard == []

    asyncio.run(scenario())


def test_deadlines_and_cancelling() -> None:
    async def scenario() -> None:
        store = ToyStore()
        async with serving(store) as nodes, swell.connect(nodes, cluster=CLUSTER) as client:
            dht = client.dht()
            await dht.put("a", b"1")
            store.mood = lambda node, execute: None
            with pytest.raises(OutcomeUnknownError):
                await dht.put("a", b"2", deadline_s=0.2)
            with pytest.raises(UnavailableError):
                await dht.get("a", deadline_s=0.2)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(dht.get("a"), 0.05)
            store.mood = serve
            assert await dht.get("a") == b"1"

    asyncio.run(scenario())


def test_clients_that_cannot_connect_say_why() -> None:
    async def scenario() -> None:
        with pytest.raises(UnavailableError, match="no node answers"):
            async with swell.connect("127.0.0.1:1"):
                pass
        async with serving(ToyStore()) as nodes:
            with pytest.raises(RefusedError, match="belongs to cluster toy"):
                async with swell.connect(nodes, cluster="another"):
                    pass
        closed = swell.connect("127.0.0.1:1")
        with pytest.raises(UnavailableError, match="not connected"):
            await closed.dht().get("a")
        with pytest.raises(ConfigurationError, match="HOST:PORT"):
            swell.connect("nonsense")
        with pytest.raises(ConfigurationError, match="at least one node"):
            swell.connect([])

    asyncio.run(scenario())


@pytest.fixture
def toy_nodes() -> Iterator[str]:
    """Toy nodes on a loop of their own; where they listen."""
    ready, end = Event(), Event()
    where: list[str] = []

    async def scenario() -> None:
        async with serving(ToyStore()) as nodes:
            where.append(nodes)
            ready.set()
            await asyncio.to_thread(end.wait)

    thread = Thread(target=lambda: asyncio.run(scenario()))
    thread.start()
    ready.wait()
    yield where[0]
    end.set()
    thread.join()


def test_all_operations_without_a_loop(toy_nodes: str) -> None:
    notices: list[Notice] = []
    with swell.connect_sync(toy_nodes, cluster=CLUSTER, listener=notices.append) as client:
        dht = client.dht()
        dht.put("a", b"1")
        assert dht.get("a") == b"1"
        assert dht.read("a", stale=True) == (b"1", True)
        assert dht.put_and_retrieve("a", b"2") == b"1"
        assert dht.contains("a")
        assert not dht.put_if_absent("a", b"3")
        assert dht.replace("a", b"3") == b"2"
        assert dht.replace_if("a", b"3", b"4")
        assert not dht.remove("a", b"3")
        assert dht.remove("a")
        with pytest.raises(InvalidKeyError):
            dht.get("")
        with pytest.raises(ConfigurationError):
            dht.get("a", deadline_s=-1.0)
    with pytest.raises(UnavailableError, match="not connected"):
        dht.get("a")
    assert [notice.what for notice in notices] == ["connected"]


def test_threads_share_a_client(toy_nodes: str) -> None:
    with swell.connect_sync(toy_nodes, cluster=CLUSTER) as client:
        dht = client.dht()
        won: list[int] = []

        def work(me: int) -> None:
            for k in range(20):
                if dht.put_if_absent(f"k{k}", b"%d" % me):
                    won.append(k)

        threads = [Thread(target=work, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(won) == list(range(20))


def test_a_blocking_client_that_cannot_connect_says_why() -> None:
    with (
        pytest.raises(UnavailableError, match="no node answers"),
        swell.connect_sync("127.0.0.1:1"),
    ):
        pass


def test_ctrl_c_ends_a_plain_program(toy_nodes: str) -> None:
    script = f"""
import signal, swell
signal.signal(signal.SIGINT, signal.default_int_handler)
with swell.connect_sync({toy_nodes!r}, cluster={CLUSTER!r}) as client:
    print("ready", flush=True)
    while True:
        client.dht().get("a")
"""
    program = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    with program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        _, complaint = program.communicate(timeout=20)
    assert program.returncode == -signal.SIGINT
    assert complaint.rstrip().endswith("KeyboardInterrupt")


def test_importing_swell_loads_no_client() -> None:
    script = "import sys, swell; print('asyncio' in sys.modules, callable(swell.connect))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout == "False True\n"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = swell.nonsense  # type: ignore[attr-defined]
