"""Mutual TLS between worlds: identities from certificates, strangers refused and counted."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from swell.errors import ConfigurationError
from swell.runtime.security import TlsMaterial, create_cluster, issue
from swell.runtime.world import Deadlines, RuntimeWorld
from swell.wire.codec import frame
from swell.wire.limits import MAGIC
from swell.world import Plane
from tests.unit.runtime_toys import ECHO, SILENT, host, raw_peer, run, until

Material = Callable[..., TlsMaterial]


@pytest.fixture(name="material")
def make_material(tmp_path: Path) -> Material:
    """Material of a node by name, of this or of another cluster."""

    def of(node: str, cluster: str = "prod") -> TlsMaterial:
        authority, out = tmp_path / f"ca-{cluster}", tmp_path / f"tls-{cluster}-{node}"
        if not authority.exists():
            create_cluster(authority, cluster)
        if not out.exists():
            issue(authority, node, out)
        return TlsMaterial(out)

    return of


def test_both_sides_know_each_other(tmp_path: Path, material: Material) -> None:
    async def main() -> None:
        async with (
            host(tmp_path / "a", name="a", tls=material("a")) as a,
            host(tmp_path / "b", name="b", tls=material("b")) as b,
        ):
            link = b.world.dial(a.address, "a")
            await until(lambda: a.node.links and b.node.links)
            assert (link.peer, a.node.links[0].peer) == ("a", "b")
            assert link.send(frame(ECHO, b"secret"))
            await until(lambda: b.node.seen("frame"))
            assert b.node.seen("frame") == [frame(ECHO, b"secret")]

    run(main)


def test_another_identity_than_expected_is_refused(tmp_path: Path, material: Material) -> None:
    async def main() -> None:
        async with (
            host(tmp_path / "a", name="a", tls=material("a")) as a,
            host(tmp_path / "b", name="b", tls=material("b")) as b,
        ):
            b.world.dial(a.address, "c")
            await until(lambda: b.node.log)
            assert b.node.log == [("down", "wrong-identity")]
            assert b.counters == {"wrong-identity": 1}
            b.world.dial(a.address, "a")
            await until(lambda: b.node.links)

    run(main)


def test_a_certificate_of_another_authority(tmp_path: Path, material: Material) -> None:
    async def main() -> None:
        async with (
            host(tmp_path / "a", name="a", tls=material("a")) as a,
            host(tmp_path / "b", name="b", tls=material("b")) as b,
            host(tmp_path / "x", name="x", tls=material("x", "evil")) as x,
        ):
            b.world.dial(a.address, "a")
            await until(lambda: b.node.links)
            x.world.dial(a.address)
            await until(lambda: x.node.seen("down"))
            assert x.node.seen("up") == []
            await until(lambda: a.counters["tls-failed"])
            assert a.counters["tls-failed"] == 1
            assert a.node.seen("up") == ["b"]
            b.node.links[0].send(frame(ECHO, b"still here"))
            await until(lambda: b.node.seen("frame"))

    run(main)


def test_a_client_that_trusts_anybody_gets_no_further(tmp_path: Path, material: Material) -> None:
    """It has no certificate, or one of another authority: TLS 1.3 lets it believe for a moment."""

    async def main() -> None:
        stranger = material("x", "evil")
        async with host(tmp_path / "a", name="a", tls=material("a")) as a:
            for certificate in (None, stranger):
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
                if certificate is not None:
                    directory = certificate.directory
                    context.load_cert_chain(directory / "node.pem", directory / "node.key")
                reader, writer = await asyncio.open_connection(*a.address, ssl=context)
                writer.write(MAGIC + frame(ECHO, b"let me in"))
                try:
                    answer = await reader.read()
                except (ssl.SSLError, ConnectionError):
                    answer = b""
                assert answer == b""
                writer.transport.abort()
            await until(lambda: a.counters["tls-failed"] == 2)
            assert a.node.log == []

    run(main)


def test_a_plain_client_on_a_tls_port(tmp_path: Path, material: Material) -> None:
    async def main() -> None:
        deadlines = Deadlines(handshake_s=0.2)
        async with host(tmp_path, name="a", tls=material("a"), deadlines=deadlines) as a:
            async with raw_peer(a.address) as talking, raw_peer(a.address) as mute:
                await talking.say(MAGIC + frame(ECHO, b"plain"))
                await talking.rest()
                await mute.rest()
            await until(lambda: a.counters["tls-failed"] == 2)
            assert a.node.log == []

    run(main)


def test_tls_client_on_a_plain_port(tmp_path: Path, material: Material) -> None:
    async def main() -> None:
        async with (
            host(tmp_path / "a", name="a") as a,
            host(tmp_path / "b", name="b", tls=material("b")) as b,
        ):
            b.world.dial(a.address)
            await until(lambda: b.node.seen("down"))
            assert a.counters == {"wrong-magic": 1}
            assert b.node.seen("up") == []

    run(main)


def test_drain_and_back_pressure_with_tls(tmp_path: Path, material: Material) -> None:
    async def main() -> None:
        async with (
            host(tmp_path / "a", name="a", tls=material("a")) as a,
            host(tmp_path / "b", name="b", tls=material("b")) as b,
        ):
            b.world.dial(a.address, "a")
            await until(lambda: a.node.links and b.node.links)
            link, sent = a.node.links[0], 0
            for _ in range(50):
                while link.send(frame(SILENT, b"x" * 1000), Plane.DATA):
                    sent += 1
                await asyncio.sleep(0)
            assert link.queued_bytes < 400_000
            link.close(drain=True)
            await until(lambda: b.node.seen("down"))
            assert len(b.node.seen("frame")) == sent > 1000

    run(main)


def test_the_certificate_must_be_the_node_s_own(tmp_path: Path, material: Material) -> None:
    async def main() -> None:
        with pytest.raises(ConfigurationError, match="is for node 'a', not for 'b'"):
            RuntimeWorld("b", tmp_path / "b", material("a"))
        world = RuntimeWorld("a", tmp_path / "a", material("a"))
        assert world.listen("0.0.0.0", 0).port
        await world.stop()

    run(main)
