"""PIP-6: what of a recommendation may be followed, value by value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swell.config.operations import VERSIONS_KEPT_MAX
from swell.config.thresholds import NAME, recommended
from swell.settings import FOLLOWED, ConfigSettings


def document(**settings: Any) -> bytes:
    return json.dumps({"settings": {f"config.{k}": v for k, v in settings.items()}}).encode()


@pytest.mark.parametrize("name", FOLLOWED)
def test_bounds_hold_the_default_and_are_themselves_allowed(name: str) -> None:
    default, bounds = getattr(ConfigSettings(), name), FOLLOWED[name]
    good = (default, True, False) if bounds is None else (default, *bounds)
    for value in good:
        assert recommended(document(**{name: value})) == ({name: value}, [])
    bad = (0, 1, None) if bounds is None else (bounds.least - 1, bounds.most + 1, True, 2.5, "8")
    for value in bad:
        values, ignored = recommended(document(**{name: value}))
        assert (values, [one for one, _ in ignored]) == ({}, [f"config.{name}"])


def test_versions_kept_are_within_what_a_step_may_say() -> None:
    bounds = FOLLOWED["keep_versions"]
    assert bounds is not None
    assert bounds.most <= VERSIONS_KEPT_MAX


@pytest.mark.parametrize("name", ["config.value_bytes_max", "relay_fanout", "store.slots", ""])
def test_other_settings_are_not_followed(name: str) -> None:
    found = recommended(json.dumps({"settings": {name: 64}}).encode())
    assert (found.values, found.ignored[0][0]) == ({}, name)


@pytest.mark.parametrize(
    "data",
    [None, b"", b"{", b"\xff", b"7", b"{}", b'{"settings": []}', b"[" * 5000, b" " * 70_000],
    ids=repr,
)
def test_what_is_no_document_recommends_nothing(data: bytes | None) -> None:
    assert [name for name, _ in recommended(data).ignored] == [NAME]
    assert recommended(data).values == {}
