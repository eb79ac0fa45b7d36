"""The experiments on configurations: what is computed from what was measured."""

from __future__ import annotations

import json
import resource

import numpy as np
import pytest

from swell.errors import ConfigurationError
from swell.lab import config_fleet, config_idle, config_large
from swell.lab.config_idle import Round
from swell.lab.config_large import Usage
from swell.lab.fleet_messages import loopback
from swell.runtime.sockets import is_loopback


def test_depth_is_that_of_the_ways_taken() -> None:
    brought = {"a": "", "b": "a", "c": "b", "d": "a", "e": ""}
    assert config_fleet.depths_of(brought) == {"a": 1, "b": 2, "c": 3, "d": 2, "e": 1}


def test_siblings_that_brought_each_other_their_last_bursts_have_a_depth() -> None:
    depths = config_fleet.depths_of({"a": "b", "b": "a"})
    assert set(depths) == {"a", "b"}
    assert max(depths.values()) > 1


def test_too_few_descriptors_are_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    with pytest.raises(ConfigurationError, match=r"ulimit -Hn"):
        config_fleet.check_descriptors(5000, 4)
    assert config_fleet.check_descriptors(1000, 4) == 4096


def test_containers_listen_on_loopback_each_at_its_own_address() -> None:
    hosts = [loopback(number) for number in range(70_000)]
    assert len(set(hosts)) == len(hosts)
    assert all(is_loopback(host) for host in (*hosts[:500], *hosts[-500:]))


def test_memory_is_the_median_of_the_rounds() -> None:
    rounds = [Round(5.0, 6.0, 1.0), Round(9.0, 9.5, 3.0), Round(4.0, 5.0, 2.0)]
    row = config_idle.row_of(False, 2000, rounds)
    assert (row["idle_kib"], row["idle_min_kib"], row["idle_max_kib"]) == (5.0, 4.0, 9.0)
    assert row["updated_kib"] == 6.0
    assert config_idle.row_of(True, 2000, [Round(30.0, None, 1.0)])["updated_kib"] is None


def test_the_large_value_is_a_json_document_with_a_route_per_line() -> None:
    value = config_large.value_of(50_000)
    routes = json.loads(value)
    assert 50_000 <= len(value) < 50_300
    assert len(routes) == value.count(b"\n") - 2
    assert len({route["host"] for route in routes.values()}) == len(routes)


def usage(sent: int, journal: int, node_mib: float, fleet_mib: float) -> Usage:
    return Usage({"a b 1": sent}, (0, journal), (100.0, node_mib), (fleet_mib,))


def test_bars_of_the_large_value_are_per_edit_and_container() -> None:
    rows = [
        {"part": "edits", "by": by, "stored_s": 1.0, "longest_ping_ms": 9.0}
        for by in ("path", "splices")
    ]
    taken = np.array([1_000_000, 3_000_000], dtype=np.int64)
    before, after = usage(1000, 10, 100.0, 500.0), usage(1000 + 8000, 10 + 600, 103.0, 506.0)
    report = config_large.report_of(rows, 10_000_000, 4, 2, before, after, taken)
    measured = [bar.measured for bar in report.bars]
    assert measured[:5] == [1000, 10_000, 300, 1.5, 0.75]
    assert [bar.holds for bar in report.bars] == [True, True, True, False, True, True]
