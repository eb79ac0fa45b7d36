"""The two processes of the `transport` experiment move what they claim to move."""

from __future__ import annotations

from pathlib import Path

from swell.lab.transport_pair import Pair, Trial


def test_both_variants_write_equally_often(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        for tls in (False, True):
            for batch in (1, 20):
                calls = {}
                for variant in ("swell", "bare"):
                    outcome = pair.run(Trial(variant, tls, batch, 300))
                    assert 0 < outcome.seconds < 10
                    calls[variant] = outcome.write_calls
                assert abs(calls["swell"] - calls["bare"]) < 20, (tls, batch, calls)
                assert 290 < calls["swell"] < 330
