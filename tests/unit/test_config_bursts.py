"""The bytes of a burst: what they say, and which are refused."""

from __future__ import annotations

import pytest

from swell.config.bursts import (
    OTHER_FORMAT,
    SIGNATURE_BYTES,
    about_burst,
    feed_of,
    open_burst,
    read_burst,
    seal,
)
from swell.errors import WireError
from tests.unit.container_toys import (
    APP,
    CLUSTER,
    EVERYTHING,
    SEALED_US,
    ToyApplication,
    key_of,
    public,
)
from tests.unit.delivery_toys import ToyFleet

KEY = key_of(1)


def made(complete_at: int = 0) -> bytes:
    application = ToyApplication()
    application.put("a", b"0123456789")
    application.put("b", b"second")
    steps = tuple(application.steps)
    return seal(KEY, CLUSTER, APP, EVERYTHING, 7, 0, 2, steps, SEALED_US, complete_at)


@pytest.mark.parametrize("complete_at", [0, 9])
def test_a_burst_says_what_was_sealed(complete_at: int) -> None:
    data = made(complete_at)
    burst = open_burst(data, CLUSTER, public(KEY))
    assert (burst.application, burst.interest, burst.epoch) == (APP, EVERYTHING, 7)
    assert (burst.after, burst.upto, burst.complete_at) == (0, 2, complete_at or 2)
    assert burst.sealed_us == SEALED_US
    assert [step.number for step in burst.steps] == [1, 2]
    assert feed_of(data) == (APP, EVERYTHING)
    assert about_burst(data) == (APP, 7, 0, 2)


def test_the_clock_is_signed() -> None:
    data = made()
    at = data.index(SEALED_US.to_bytes(8, "big"))
    altered = data[:at] + (SEALED_US + 1).to_bytes(8, "big") + data[at + 8 :]
    assert read_burst(altered).sealed_us == SEALED_US + 1
    with pytest.raises(WireError) as caught:
        open_burst(altered, CLUSTER, public(KEY))
    assert caught.value.reason == "bad-signature"


@pytest.mark.parametrize("format_", [0, 1, 3])
def test_other_formats_are_refused(format_: int) -> None:
    unsigned = bytes([format_]) + made()[1:-SIGNATURE_BYTES]
    signed = unsigned + KEY.sign(b"swell-burst\0" + CLUSTER.encode() + b"\0" + unsigned)
    with pytest.raises(WireError) as caught:
        open_burst(signed, CLUSTER, public(KEY))
    assert caught.value.reason == OTHER_FORMAT
    assert f"format {format_}" in str(caught.value)


def test_a_burst_that_is_cut_off_is_refused() -> None:
    data = made()
    for length in range(len(data)):
        with pytest.raises(WireError):
            read_burst(data[:length])


def test_a_primary_seals_by_its_own_clock() -> None:
    fleet = ToyFleet()
    (one,) = fleet.add("c1")
    one.asleep = True
    fleet.run(1.0)
    before_us = fleet.primary.delivery.world.wall_us()
    fleet.put("a.json", b"1")
    fleet.run(0.1)
    sealed_us = read_burst(fleet.feed().bursts[0].sealed.data).sealed_us
    assert before_us <= sealed_us < before_us + 100_000
