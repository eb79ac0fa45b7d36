"""Contents: plain bytes to look at, trees that share what did not change."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.config import tree
from swell.config.chunking import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN
from swell.config.content import Content, Missing, assembled, missing
from swell.config.splices import BadDeltaError, Delta, Splice, apply_to, inverse
from swell.config.tree import CHILDREN_MAX, CHILDREN_MIN, Item, Leaf, Node
from swell.errors import WireError

KIB = 1024
DATA = Random(1).randbytes(2048 * KIB)


def items(root: Item) -> Iterator[Item]:
    yield root
    if isinstance(root, Node):
        for child in root.children:
            yield from items(child)


def assert_sound(content: Content, data: bytes) -> None:
    """The bytes are these, the bounds hold, and the shape follows from the chunks alone."""
    assert content.bytes() == data
    assert len(content) == len(data)
    chunks = list(content.chunks())
    assert all(len(chunk) <= CHUNK_BYTES_MAX for chunk in chunks)
    assert len(chunks) == 1 or all(len(chunk) >= CHUNK_BYTES_MIN for chunk in chunks)
    root = content._root
    assert not isinstance(root, Node) or len(root.children) > 1
    for item in items(root):
        if isinstance(item, Node):
            assert len(item.children) <= CHILDREN_MAX
            assert {child.height for child in item.children} == {item.height - 1}
            assert item.length == sum(child.length for child in item.children)
    rebuilt = Content.from_chunks(chunks)
    assert rebuilt.digest == content.digest
    assert [item.digest for item in items(rebuilt._root)] == [item.digest for item in items(root)]


def delta_of(random: Random, length: int, count: int, longest: int) -> Delta:
    """Random splices, at random or huddled together; small ones and large ones."""
    splices = []
    at = random.choice([0, random.randint(0, length)])
    for _ in range(count):
        at = min(length, at + random.choice([0, random.randint(0, 50), random.randint(0, 99_999)]))
        removed = min(length - at, random.choice([0, 1, random.randint(0, longest)]))
        added = random.choice([0, 1, random.randint(0, longest)])
        if removed or added:
            splices.append(Splice(at, removed, random.randbytes(added)))
        at += removed
    return tuple(splices)


@settings(max_examples=40, deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.sampled_from([0, 10, 5 * KIB, 32 * KIB, 33 * KIB, 300 * KIB, 2048 * KIB]),
    st.sampled_from([20, 9 * KIB, 150 * KIB]),
)
def test_splices_as_on_plain_bytes(random: Random, length: int, longest: int) -> None:
    data = DATA[:length]
    content = Content.of(data)
    assert_sound(content, data)
    for _ in range(4):
        splices = delta_of(random, len(data), random.randint(0, 6), longest)
        back = inverse(splices, content)
        assert back == inverse(splices, data)
        content, data = content.splice(splices), apply_to(data, splices)
        assert_sound(content, data)
        assert content.splice(back).bytes() == apply_to(data, back)


@pytest.mark.parametrize("children_max", [8, 20])
def test_deep_trees(monkeypatch: pytest.MonkeyPatch, children_max: int) -> None:
    """Many levels, borders by digest and by count, and items that are alike."""
    monkeypatch.setattr(tree, "CHILDREN_MIN", 2)
    monkeypatch.setattr(tree, "CHILDREN_MAX", children_max)
    monkeypatch.setattr(tree, "_BORDER_BELOW", 80)
    random = Random(children_max)
    data = DATA[: 1024 * KIB] + bytes(1024 * KIB)
    content = Content.of(data)
    assert content._root.height > 3
    for _ in range(30):
        splices = delta_of(random, len(data), random.randint(1, 9), random.choice([30, 400_000]))
        content, data = content.splice(splices), apply_to(data, splices)
        assert_sound(content, data)


@pytest.mark.parametrize(
    ("splices", "length"),
    [
        ((Splice(0, 2048 * KIB, b""),), 0),
        ((Splice(0, 2048 * KIB - 5, b""),), 5),
        ((Splice(5, 2048 * KIB - 5, b""),), 5),
        ((Splice(7, 1024 * KIB, b"x"),), 1024 * KIB + 1),
        ((Splice(1, 16 * KIB, b""), Splice(2032 * KIB, 16 * KIB - 1, b"")), 2016 * KIB + 1),
        ((Splice(2048 * KIB, 0, b"tail"),), 2048 * KIB + 4),
        ((Splice(16 * KIB, 16 * KIB, b""),), 2032 * KIB),
        ((Splice(2000 * KIB, 40 * KIB, b""), Splice(2048 * KIB, 0, b"y")), 2008 * KIB + 1),
    ],
)
def test_edges(splices: Delta, length: int) -> None:
    content = Content.of(DATA).splice(splices)
    assert len(content) == length
    assert_sound(content, apply_to(DATA, splices))


def test_a_short_value_is_one_chunk_and_its_own_bytes() -> None:
    data = DATA[: 10 * KIB]
    content = Content.of(data)
    assert content.bytes() is data
    assert list(Content.of(b"").chunks()) == [b""]
    grown = content.splice((Splice(10 * KIB, 0, DATA[: 22 * KIB]),))
    assert len(list(grown.chunks())) == 1
    assert len(list(grown.splice((Splice(0, 0, b"x"),)).chunks())) == 2


def test_nothing_to_do_is_the_same_content() -> None:
    content = Content.of(DATA)
    assert content.splice(()) is content


@pytest.mark.parametrize("length", [100, 2048 * KIB])
def test_a_delta_of_another_base_is_refused(length: int) -> None:
    content = Content.of(DATA[:length])
    with pytest.raises(BadDeltaError, match="of a base of"):
        content.splice((Splice(length, 1, b"x"),))


def test_a_small_edit_shares_all_but_its_path() -> None:
    data = DATA * 4
    base = Content.of(data)
    known = {id(item) for item in items(base._root)}
    assert base.digest
    edited = base.splice((Splice(3_000_000, 10, b"a new line\n"),))
    new = [item for item in items(edited._root) if id(item) not in known]
    assert len(list(base.chunks())) == 512
    assert sum(isinstance(item, Leaf) for item in new) == 1
    assert sum(isinstance(item, Node) for item in new) <= 5
    assert base.bytes() == data
    assert edited.digest != base.digest


def test_only_new_items_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    base = Content.of(DATA)
    assert base.digest
    hashed = []
    plain = tree.digest_of
    monkeypatch.setattr(tree, "digest_of", lambda data: hashed.append(len(data)) or plain(data))
    edited = base.splice((Splice(1_000_000, 0, b"x"),))
    assert edited.digest != base.digest
    assert hashed == [16 * KIB + 1]
    short = Content.of(DATA[:100]).splice((Splice(0, 1, b""),))
    assert hashed == [16 * KIB + 1]
    assert short.digest == plain(DATA[1:100])


def test_the_shape_is_pinned() -> None:
    """Another division of the same bytes would give every version another digest."""
    content = Content.of(bytes(100 * KIB) + DATA[: 900 * KIB])
    assert content.digest.hex() == "3bd2bf95440b14664df2ac69f8444fa5bf6ca30a"
    edited = content.splice((Splice(5000, 20 * KIB, b"x"), Splice(700_000, 0, bytes(70_000))))
    assert edited.digest.hex() == "145d7982586e63b46431b0158a9c33505ea1cd7f"


def test_most_nodes_have_about_thirty_children() -> None:
    leaves = [Leaf(number.to_bytes(4, "big")) for number in range(6400)]
    nodes = [item for item in items(tree.grown(leaves)) if isinstance(item, Node)]
    rows = [len(node.children) for node in nodes if node.height == 1]
    assert 25 < sum(rows) / len(rows) < 36
    assert all(CHILDREN_MIN <= count <= CHILDREN_MAX for count in rows[:-1])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2048 * KIB), st.sampled_from([0, 1, 100, 16 * KIB, 70 * KIB, 4096 * KIB]))
def test_reads_any_part(offset: int, length: int) -> None:
    content = Content.of(DATA)
    assert content.read(offset, length) == DATA[offset : offset + length]
    assert Content.of(DATA[:100]).read(offset % 101, length) == DATA[:100][offset % 101 :][:length]


def test_only_new_chunks_are_fetched() -> None:
    mine = Content.of(DATA)
    theirs = mine.splice((Splice(500_000, 3, b"four"), Splice(1_500_000, 0, DATA[: 64 * KIB])))
    wanted = missing(mine, list(theirs.chunk_ids()))
    assert sum(part.length for part in wanted) < 120 * KIB
    fetched = {part.digest: theirs.read(part.offset, part.length) for part in wanted}
    made = assembled(mine, list(theirs.chunk_ids()), fetched)
    assert made.digest == theirs.digest
    assert made.bytes() == theirs.bytes()
    assert missing(theirs, list(theirs.chunk_ids())) == []


def test_equal_chunks_are_fetched_once() -> None:
    theirs = Content.of(bytes(1024 * KIB))
    chunk = next(theirs.chunk_ids())
    assert missing(None, list(theirs.chunk_ids())) == [Missing(0, 16 * KIB, chunk.digest)]
    made = assembled(None, list(theirs.chunk_ids()), {chunk.digest: bytes(16 * KIB)})
    assert made.digest == theirs.digest


def test_chunks_that_lie_are_refused() -> None:
    theirs = Content.of(DATA)
    ids = list(theirs.chunk_ids())
    fetched = dict(zip([chunk.digest for chunk in ids], theirs.chunks(), strict=True))
    with pytest.raises(WireError, match="was not fetched"):
        assembled(None, ids, {})
    with pytest.raises(WireError, match="other bytes"):
        assembled(None, ids, {**fetched, ids[3].digest: fetched[ids[4].digest]})
    with pytest.raises(WireError, match="other bytes"):
        assembled(None, [ids[0]._replace(length=5), *ids[1:]], fetched)


@pytest.mark.parametrize(
    "chunks",
    [[bytes(CHUNK_BYTES_MAX + 1)], [b"", bytes(5000)], [bytes(5000), bytes(4095)]],
)
def test_chunks_of_no_content_are_refused(chunks: list[bytes]) -> None:
    with pytest.raises(WireError, match="bad-chunk"):
        Content.from_chunks(chunks)


def test_no_chunks_are_the_empty_content() -> None:
    assert Content.from_chunks([]).digest == Content.of(b"").digest
