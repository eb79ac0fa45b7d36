"""Tokens on a real node with TLS: certificates of all roles, the commands, the client library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from swell.client.blocking import SyncConnection, connect_sync
from swell.client.store_session import Notice
from swell.errors import RefusedError, SwellError
from swell.runtime.security import create_cluster, issue
from swell.world import Role
from tests.processes.commands import NodeProcess, await_condition, complaint, swell, swell_json


class Secure:
    """One node, and a certificate of each role."""

    def __init__(self, path: Path, address: str) -> None:
        self.path = path
        self.address = address

    def to(self, role: Role) -> tuple[str | Path, ...]:
        return "--connect", self.address, "--cluster", self.path / role

    def client(self, token: str, notices: list[Notice] | None = None) -> SyncConnection:
        return connect_sync(
            self.address,
            certificates=self.path / Role.CLIENT,
            token=token,
            listener=None if notices is None else notices.append,
        )


@pytest.fixture(name="secure", scope="module")
def make_secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    path = tmp_path_factory.mktemp("secure")
    create_cluster(path / "ca", "prod")
    for role in (Role.NODE, Role.ADMIN, Role.CLIENT):
        issue(path / "ca", f"some-{role}", path / role, role)
    with NodeProcess(
        "--name", "some-node", "--site", "s", "--data", path / "data", "--settings", "local",
        "--replicas", "1", "--cluster", path / Role.NODE,
    ) as node:  # fmt: skip
        address = node.ready("listening")["address"]
        node.ready("joined")
        yield Secure(path, address)


def test_from_creation_to_revocation(secure: Secure) -> None:
    admin = secure.to(Role.ADMIN)
    assert swell_json("dht", "put", "a/k", "1", *admin)["bytes"] == 1
    made = swell("token", "create", "--read", "@dht/a/", "--label", "reader", *admin)
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip()
    assert token not in made.stderr
    (listed,) = swell_json("token", "list", *admin)["tokens"]
    assert (listed["label"], listed["state"]) == ("reader", "valid")
    assert token.endswith(tuple("abcdefghijklmnopqrstuvwxyz234567"))
    assert token.split("_")[1] == listed["id"]
    shown = swell("token", "list", *admin).stdout
    assert "read @dht/a/" in shown
    assert token.split("_")[2] not in shown

    notices: list[Notice] = []
    with secure.client(token, notices) as client:
        dht = client.dht()
        assert dht.get("a/k") == b"1"
        with pytest.raises(RefusedError, match="this token may not write @dht/a/k"):
            dht.put("a/k", b"2")
        with pytest.raises(RefusedError, match="this token may not read @dht/b"):
            dht.get("b")
        assert swell_json("token", "revoke", listed["id"], *admin)["state"] == "revoked"
        await_condition(lambda: notices[-1].what == "disconnected", 10.0, "cut off")
        assert "was revoked" in notices[-1].detail
        with pytest.raises(RefusedError, match="was revoked"):
            dht.get("a/k")
    with pytest.raises(RefusedError, match="was revoked"), secure.client(token):
        pass


def test_a_client_s_certificate_alone(secure: Secure) -> None:
    client = secure.to(Role.CLIENT)
    assert swell_json("status", *client)["name"] == "some-node"
    assert "takes a token" in complaint("dht", "get", "a/k", *client)
    for words in (["overlay"], ["token", "list"], ["token", "create", "--write", "*"]):
        assert "for administrators" in complaint(*words, *client)
    with pytest.raises(SwellError, match="not a token"):
        secure.client("swell_guess")
    data = ("--data", secure.path / "other", "--site", "s", "--name", "some-client")
    assert "has the role client" in complaint("node", *data, "--cluster", secure.path / Role.CLIENT)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["create"], "use --read, --write or --relay"),
        (["create", "--read", "shop/a*"], "leave out the *"),
        (["create", "--read", "@system"], "write @dht for the DHT"),
        (["create", "--read", "shop", "--ttl", "30"], "write a number and s, m, h or d"),
        (["create", "--read", "shop", "--ttl", "99999d"], "at most 3650d"),
        (["revoke", "nonsense"], "is not the id of a token"),
        (["revoke", "aaaaaaaaaaaaa"], "no token has the id"),
    ],
)
def test_mistakes(secure: Secure, words: list[str], sentence: str) -> None:
    assert sentence in complaint("token", *words, *secure.to(Role.ADMIN))
