"""The data directory: one process, one node, one cluster, a counter of starts."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import msgspec
import pytest

from swell.errors import ConfigurationError
from swell.ids import LIVES_PER_DIRECTORY
from swell.runtime.identity import DataDirectory, Identity


def test_starts_are_counted(tmp_path: Path) -> None:
    names = set()
    for expected in (1, 2, 3):
        directory = DataDirectory(tmp_path / "data", "c", "n")
        assert directory.epoch == expected
        names.add(directory.uid)
        directory.close()
    assert len(names) == 1


def test_lives_are_consecutive_and_higher_in_a_directory_that_was_made_later(
    tmp_path: Path,
) -> None:
    def live(path: Path) -> int:
        directory = DataDirectory(path, "c", "n")
        directory.close()
        return directory.life

    first = live(tmp_path / "data")
    assert first % LIVES_PER_DIRECTORY == 1
    assert [live(tmp_path / "data") for _ in range(3)] == [first + 1, first + 2, first + 3]
    file = tmp_path / "data" / "identity.json"
    known = msgspec.json.decode(file.read_bytes(), type=Identity)
    earlier = msgspec.structs.replace(known, made_s=known.made_s - 1)
    file.write_bytes(msgspec.json.encode(earlier))
    last = live(tmp_path / "data")
    rmtree(tmp_path / "data")
    assert live(tmp_path / "data") > last


def test_a_directory_that_does_not_say_when_it_was_made_counts_on(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_bytes(b'{"cluster": "c", "node": "n", "starts": 4}')
    directory = DataDirectory(tmp_path, "c", "n")
    directory.close()
    assert directory.life == directory.epoch == 5


@pytest.mark.parametrize(("cluster", "node"), [("c", "other"), ("other", "n")])
def test_a_directory_of_another_node(tmp_path: Path, cluster: str, node: str) -> None:
    DataDirectory(tmp_path, "c", "n").close()
    with pytest.raises(ConfigurationError, match="belongs to node 'n' of cluster 'c'"):
        DataDirectory(tmp_path, cluster, node)
    directory = DataDirectory(tmp_path, "c", "n")
    assert directory.epoch == 2
    directory.close()


def test_a_condemned_directory_never_starts_again(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, "c", "n")
    directory.condemn("it is an old copy")
    directory.close()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="was refused before: it is an old copy"):
            DataDirectory(tmp_path, "c", "n")


def test_two_owners_at_once(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path, "c", "n")
    with pytest.raises(ConfigurationError, match="in use by another process"):
        DataDirectory(tmp_path, "c", "n")
    first.close()
    DataDirectory(tmp_path, "c", "n").close()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"cluster": 1}', b"\xff"])
def test_a_damaged_identity(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "identity.json").write_bytes(content)
    with pytest.raises(ConfigurationError, match="is damaged"):
        DataDirectory(tmp_path, "c", "n")


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot use"):
        DataDirectory(tmp_path / "file", "c", "n")
