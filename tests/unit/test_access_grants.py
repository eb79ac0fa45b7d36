"""Grants and tokens by themselves: what matches, what is no token, what a record keeps."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.access.grants import (
    DHT,
    EVERYTHING,
    NOTHING,
    Grant,
    Granted,
    Right,
    check_grant,
    merge,
    parse_grant,
)
from swell.access.token import (
    ENTROPY_BYTES,
    BadTokenError,
    TokenRecord,
    decode_record,
    draw,
    encode_record,
    is_id,
    parse,
)
from swell.config import access as config_access
from swell.config import operations as config_ops
from swell.config.edits import Whole
from swell.dht import access as dht_access
from swell.dht import operations as dht_ops
from swell.errors import InvalidNameError, WireError
from swell.store.request import Request

READ, WRITE, RELAY = Right.READ, Right.WRITE, Right.RELAY
TOKEN = draw(bytes(range(ENTROPY_BYTES)))


def granted(*texts: str, right: Right = READ) -> Granted:
    return Granted([parse_grant(text, right) for text in texts])


@pytest.mark.parametrize(
    ("grant", "application", "name", "allowed"),
    [
        ("shop", "shop", "", True),
        ("shop", "shop", "any/name.json", True),
        ("shop", "shop", None, True),
        ("shop", "shopping", "", False),
        ("shop", "sho", "", False),
        ("shop", "Shop", "", False),
        ("shop", "shop ", "", False),
        ("shop", "shop/x", "", False),
        ("shop", "", "", False),
        ("shop", "*", "", False),
        ("shop", "shop*", "", False),
        ("shop", "sh\u043ep", "", False),  # a Cyrillic o
        ("shop*", "shopping", "x", True),
        ("shop*", "shop", "x", True),
        ("shop*", "sho", "x", False),
        ("shop*", "*", "x", False),
        ("*", "anything", "x", True),
        ("*", DHT, "x", False),
        ("*", "@system", "x", False),
        ("shop/pay", "shop", "pay", True),
        ("shop/pay", "shop", "payments/a.json", True),
        ("shop/pay", "shop", "Pay", False),
        ("shop/pay", "shop", "", False),
        ("shop/pay", "shop", None, True),
        ("shop/pay", "shop", "pa*", False),
        ("shop/pay", "shop", "*", False),
        ("shop/pay", "shop", "../shop/pay", False),
        ("shop/pay", "shop", "%70ay", False),
        ("shop/pay", "shop", "x\0pay", False),
        ("shop/caf\u00e9", "shop", "cafe\u0301", False),
        ("@dht", DHT, "key", True),
        ("@dht/a/", DHT, "a/b", True),
        ("@dht/a/", DHT, "ab", False),
        ("@dht", "dht", "key", False),
    ],
)
def test_what_a_grant_covers(grant: str, application: str, name: str | None, allowed: bool) -> None:
    access = granted(grant)
    assert access.may(READ, application, name) is allowed
    assert bool(access.refusal(READ, application, name)) is not allowed
    assert not access.may(WRITE, application, name)
    assert not access.may(RELAY, application, name)


@given(st.text(max_size=6), st.text(max_size=6), st.text(max_size=6))
@settings(max_examples=200)
def test_an_exact_grant_covers_its_application_only(own: str, other: str, name: str) -> None:
    access = Granted([Grant(own + "x", "", (WRITE,))])
    assert access.may(WRITE, other, name) == (other == own + "x")


@pytest.mark.parametrize(
    "text",
    ["", "/x", "@system", "@dht*", "@dht/a*", "a\nb", "..", "a..b/../..x*", "shop/pay*",
     "shop/*", "shop/a\x00", "sh\u043ep/\u202e", "shop/cafe\u0301", "x" * 256,
     "shop/" + "x" * 513, "\udc80", "shop/\udc80"],
)  # fmt: skip
def test_grants_that_no_token_may_have(text: str) -> None:
    with pytest.raises(InvalidNameError) as error:
        parse_grant(text, READ)
    assert str(error.value).encode()  # it can be printed


@pytest.mark.parametrize("text", ["shop", "shop*", "*", "@dht", "@dht/cafe\u0301", "b\u00fcro/x y"])
def test_grants_that_a_token_may_have(text: str) -> None:
    assert str(check_grant(parse_grant(text, READ))) == text


def test_rights_on_one_place_are_merged() -> None:
    texts = [("a", WRITE), ("a", READ), ("a/x", READ), ("a", READ)]
    merged = merge(parse_grant(text, right) for text, right in texts)
    assert merged == (Grant("a", "", (READ, WRITE)), Grant("a", "x", (READ,)))


def test_a_refusal_says_what_to_ask_for() -> None:
    access = granted("shop")
    sentence = "this token may not write application shop: ask for one with --write shop"
    assert access.refusal(WRITE, "shop") == sentence
    sentence = "this token may not write shop/a.json: ask for one with --write shop/a.json"
    assert access.refusal(WRITE, "shop", "a.json") == sentence
    odd = access.refusal(WRITE, "\x1b[31m\n", "x" * 1000)
    assert odd.isprintable()
    assert len(odd) < 300
    assert "--read @dht/k" in NOTHING.refusal(READ, DHT, "k")
    assert EVERYTHING.may(WRITE, "any", "thing")


# Tokens.


def test_a_token_is_its_text() -> None:
    assert len(TOKEN.text) == 52
    assert parse(TOKEN.text) == TOKEN
    assert is_id(TOKEN.id)
    assert TOKEN.secret.hex() not in repr(TOKEN.hash)


@given(st.binary(min_size=ENTROPY_BYTES, max_size=ENTROPY_BYTES))
@settings(max_examples=50)
def test_every_token_has_one_text(entropy: bytes) -> None:
    token = draw(entropy)
    assert parse(token.text) == token
    for other in (token.text[:-1], token.text + "a", token.text.upper(), " " + token.text):
        with pytest.raises(BadTokenError):
            parse(other)


@pytest.mark.parametrize(
    "text",
    ["", "swell", "swell__", "swell_a_b", f"Swell{TOKEN.text[5:]}", TOKEN.text.replace("_", "-"),
     TOKEN.text + "_", TOKEN.text + "\n", f"swell_{TOKEN.id}", TOKEN.text[:-1] + "1",
     TOKEN.text[:-1] + "=", TOKEN.text[:-1] + "\u00e4", TOKEN.text[:-1] + "\u017f", "\0" * 52,
     f"swell_{'a' * 12}b_{TOKEN.text[-32:]}", "x" * 10_000],
)  # fmt: skip
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(BadTokenError) as error:
        parse(text)
    assert TOKEN.text[-31:] not in str(error.value)


def record(**changes: object) -> TokenRecord:
    made = TokenRecord(TOKEN.hash, (parse_grant("shop", READ),), 100, "label", 1)
    return msgspec.structs.replace(made, **changes)


def test_a_record_fits_its_own_token_only() -> None:
    kept = decode_record(encode_record(record()))
    assert kept == record()
    assert kept.fits(TOKEN)
    assert TOKEN.secret not in encode_record(record())
    assert not kept.fits(TOKEN._replace(secret=bytes(20)))
    assert not kept.fits(TOKEN._replace(id=draw(bytes(ENTROPY_BYTES)).id))


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", encode_record(record())[:-1], encode_record(record(hash=b"short")),
             encode_record(record(grants=())), encode_record(record()) + b"\x00"],
)  # fmt: skip
def test_damaged_records(data: bytes) -> None:
    with pytest.raises(WireError, match="bad-token-record"):
        decode_record(data)


# What operations take.


def dht_needs(request: Request) -> list[Right]:
    """The rights without which an operation is refused."""
    every = {READ, WRITE, RELAY}
    return [
        right
        for right in Right
        if dht_access.refusal(Granted([Grant(DHT, "a/", tuple(every - {right}))]), request.body)
    ]


def test_rights_for_the_dht() -> None:
    assert dht_needs(dht_ops.get("a/k")) == [READ]
    assert dht_needs(dht_ops.contains("a/k")) == [READ]
    assert dht_needs(dht_ops.put("a/k", b"v")) == [WRITE]
    assert dht_needs(dht_ops.put_if_absent("a/k", b"v")) == [WRITE]
    assert dht_needs(dht_ops.remove("a/k")) == [WRITE]
    assert dht_needs(dht_ops.remove("a/k", b"v")) == [WRITE]
    assert dht_needs(dht_ops.replace_if("a/k", b"v", b"w")) == [WRITE]
    assert dht_needs(dht_ops.replace("a/k", b"v")) == [READ, WRITE]
    assert dht_needs(dht_ops.put_and_retrieve("a/k", b"v")) == [READ, WRITE]


@pytest.mark.parametrize("body", [b"", b"\x03", b"\x63\x00\x01k", b"\x03\x00\x01\xff", b"\x00" * 9])
def test_bodies_that_are_no_operation_are_refused(body: bytes) -> None:
    access = Granted([Grant(DHT, "", (READ, WRITE)), Grant("*", "", (READ, WRITE))])
    assert dht_access.refusal(access, body)
    assert config_access.refusal(access, body)


def config_allows(access: Granted, request: msgspec.Struct) -> bool:
    return not config_access.refusal(access, config_ops.encode(request))  # type: ignore[arg-type]


def test_rights_for_configurations() -> None:
    reader, writer = granted("shop/a"), granted("shop/a", right=WRITE)
    whole = granted("shop", right=WRITE)
    reads = [
        config_ops.Get("shop", "a.json"),
        config_ops.ReadRange("shop", "a.json", 1, 0, 10),
        config_ops.GetLeaves("shop", "a.json", 1),
        config_ops.GetHistory("shop", "a.json"),
        config_ops.ListNames("shop", "a"),
    ]
    for request in reads:
        assert config_allows(reader, request)
        assert not config_allows(writer, request)
        assert not config_allows(granted("other"), request)
    assert not config_allows(reader, config_ops.ListNames("shop", ""))
    assert not config_allows(reader, config_ops.Get("shop", "b.json"))
    one, both = (Whole("a.json", b"1"),), (Whole("a.json", b"1"), Whole("b.json", b"2"))
    assert config_allows(writer, config_ops.Publish("shop", one))
    assert not config_allows(writer, config_ops.Publish("shop", both))
    assert not config_allows(reader, config_ops.Publish("shop", one))
    assert not config_allows(writer, config_ops.Publish("other", one))
    assert config_allows(writer, config_ops.Stage("shop", bytes(8), 0, b"x"))
    assert not config_allows(writer, config_ops.SetOptions("shop", False))
    assert config_allows(whole, config_ops.SetOptions("shop", False))
    for request in (config_ops.ListApplications(), config_ops.Step("shop", ())):
        assert not config_allows(granted("*", right=WRITE), request)


def test_rights_of_followers() -> None:
    access = granted("shop/a")
    for interest, allowed in [
        ((), False), (("a.json",), True), (("a*",), True), (("*",), False), (("b*", "a*"), False),
        (("a.json", "b.json"), False), (("A*",), False),
    ]:  # fmt: skip
        assert bool(config_access.follow_refusal(access, "shop", interest)) is not allowed
        assert not config_access.may_relay(access, "shop", interest)
    relay = granted("shop", right=RELAY)
    assert config_access.may_relay(relay, "shop", ())
    assert config_access.follow_refusal(relay, "shop", ())
    assert not config_access.outcome_refusal(granted("shop/a", right=WRITE), "shop")
    assert not config_access.outcome_refusal(access, "shop")
    assert config_access.outcome_refusal(relay, "shop")
