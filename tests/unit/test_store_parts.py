"""Long states in pieces: the same bytes, without a copy, whatever happens to the state."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from swell.config.edits import Resolved, Way
from swell.config.machine import ConfigMachine
from swell.config.operations import CONFIG_SERVICE, Step, encode
from swell.config.versions import NO_VERSION
from swell.store import entry as entries
from swell.store import payload, snapshots
from swell.store.chain import Chain
from swell.store.entry import NO_DIGEST
from swell.store.parts import Parts
from swell.store.snapshots import SlotImage
from swell.store.state import COPIED_BYTES_MAX, SlotState


@given(st.lists(st.binary(max_size=9), max_size=6), st.integers(0, 60), st.integers(0, 60))
def test_parts_are_cut_as_their_bytes_are(pieces: list[bytes], start: int, length: int) -> None:
    whole, parts = b"".join(pieces), Parts(pieces)
    assert (len(parts), bytes(parts)) == (len(whole), whole)
    assert parts[start : start + length] == whole[start : start + length]
    assert b"".join(parts) == whole


def test_a_file_is_the_same_from_pieces() -> None:
    def image(state: bytes | Parts) -> SlotImage:
        return SlotImage(3, 7, 2, b"12345678", state, [], 7)

    whole = snapshots.encode(5, 1, 9, image(b"abcdefgh"))
    assert snapshots.encode(5, 1, 9, image(Parts([b"abc", b"", b"defgh"]))) == whole
    assert snapshots.decode(whole[0]) == (5, 1, 9, image(b"abcdefgh"), whole[1])


def step_of(data: bytes, base: bytes = NO_VERSION) -> bytes:
    edit = Resolved("a.bin", Way.WHOLE, base, data, None)
    return payload.encode_command(
        1 << 32, 1, 1, CONFIG_SERVICE, encode(Step("maps", (edit,), "", 0))
    )


def test_the_image_of_a_long_state_shares_its_chunks() -> None:
    state = SlotState({CONFIG_SERVICE: ConfigMachine})
    short = state.image()
    assert isinstance(short, bytes)
    assert short == state.dump()
    state.apply(step_of(Random(1).randbytes(2 * COPIED_BYTES_MAX)))
    image, dump = state.image(), state.dump()
    assert isinstance(image, Parts)
    assert bytes(image) == dump
    machine = state.machine(CONFIG_SERVICE)
    assert isinstance(machine, ConfigMachine)
    content = machine.content_at("maps", "a.bin", 1)
    assert content is not None
    shared = {id(piece) for piece in image}
    assert all(id(chunk) in shared for chunk in content.chunks())
    copy = SlotState({CONFIG_SERVICE: ConfigMachine})
    copy.load(bytes(image))
    assert copy.dump() == dump


def test_a_chain_sheds_bytes_and_nothing_that_is_needed() -> None:
    chain, digest = Chain(), NO_DIGEST
    for sequence in range(1, 11):
        entry = entries.make(0, 1, sequence, digest, b"x" * 100)
        chain.append(entry)
        digest = entry.digest
    each = len(chain.entry(1).data)
    assert chain.size == 10 * each
    chain.shed(4 * each, upto=3)
    assert (chain.base, chain.size) == (3, 7 * each)
    chain.shed(4 * each, upto=9)
    assert (chain.base, chain.size) == (6, 4 * each)
    chain.cut(8)
    assert (chain.last, chain.size, chain.digest_at(6)) == (8, 2 * each, chain.base_digest)
