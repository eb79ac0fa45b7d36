"""Settings that follow a recommendation while the node runs (PIP-6).

The pipeline measures the load and publishes thresholds that suit it as a configuration of the
cluster: application `swell`, `thresholds.json`. Every node reads it now and then, by the way that
clients' queries go, and takes over what it may (`swell.settings.FOLLOWED`). Each value is checked
by itself: one that is unknown, of the wrong type or out of its bounds is named in an event and the
node's own setting stays. Without the configuration the node's own settings hold.

Nothing but speed and cost rests on these values, so nodes need not agree: each uses its own for the
slots that it serves. While the configuration cannot be read, what was followed last holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from swell.config import requests
from swell.config.operations import CONFIG_SERVICE, Got
from swell.errors import WireError
from swell.events import ThresholdIgnored, ThresholdsFollowed
from swell.settings import FOLLOWED, ConfigSettings
from swell.store.messages import Execute, Executed, Status
from swell.world import Timer, World

APPLICATION = "swell"
NAME = "thresholds.json"
PREFIX = "config."
"""Of names in the document: the part of `swell.settings.Settings` that they are of."""

DEADLINE_S = 5.0
RETRY_S = 2.0
"""After a query without an answer, if that is sooner than the next."""

IGNORED_MAX = 16
NAME_MAX = 64
"""Values that are named, and how much of their names."""

_LENGTH_MAX = 64 * 1024

Query = Callable[[Execute, Callable[[Executed], None]], None]


class Recommended(NamedTuple):
    """What a document says that may be followed, and (name, reason) of what may not."""

    values: dict[str, int]
    ignored: list[tuple[str, str]]


def recommended(data: bytes | None) -> Recommended:
    """Read the document, `{"settings": {"config.relay_fanout": 60, …}}`."""
    found = Recommended({}, [])
    if data is None or len(data) > _LENGTH_MAX:
        found.ignored.append((NAME, f"it is longer than {_LENGTH_MAX} bytes"))
        return found
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = None
    settings = document.get("settings") if isinstance(document, dict) else None
    if not isinstance(settings, dict):
        found.ignored.append((NAME, "it is no JSON object with an object `settings`"))
        return found
    for name, value in settings.items():
        reason = _refusal(name, value)
        if reason:
            found.ignored.append((name[:NAME_MAX], reason))
        else:
            found.values[name.removeprefix(PREFIX)] = value
    return found


def _refusal(name: str, value: Any) -> str:
    """Why a value is not followed; empty if it is."""
    setting = name.removeprefix(PREFIX)
    if not name.startswith(PREFIX) or setting not in FOLLOWED:
        return "no setting of this name is followed"
    bounds = FOLLOWED[setting]
    if bounds is None:
        return "" if isinstance(value, bool) else "it is true or false"
    if type(value) is int and bounds.least <= value <= bounds.most:
        return ""
    return f"it is a whole number from {bounds.least} to {bounds.most}"


class Thresholds:
    """One node's reader."""

    def __init__(
        self,
        world: World,
        query: Query,
        slots: Callable[[], int],
        own: ConfigSettings,
        follow: Callable[[ConfigSettings], None],
        counters: Counter[str],
    ) -> None:
        """`follow` hears the settings that hold from then on."""
        self._world = world
        self._query = query
        self._slots = slots
        self._own = own
        self._follow = follow
        self._counters = counters
        self._timer: Timer | None = None
        self._running = False
        self._number = 0
        self._seen = b""
        """Id of the version that is followed; none: the node's own settings."""

    def start(self) -> None:
        """Look now and then; a second time is none."""
        if self._own.follow_s > 0.0 and not self._running:
            self._running = True
            self._later(RETRY_S)

    def stop(self) -> None:
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _later(self, delay_s: float) -> None:
        self._timer = self._world.call_later(min(delay_s, self._own.follow_s), self._ask)

    def _ask(self) -> None:
        self._timer = None
        slots = self._slots()
        if not slots:
            self._later(self._own.follow_s)
            return
        request = requests.get(APPLICATION, NAME)
        self._number += 1
        execute = Execute(
            0, self._number, self._number, request.place % slots, CONFIG_SERVICE, request.read,
            request.body, DEADLINE_S,
        )  # fmt: skip
        self._query(execute, self._on_executed)

    def _on_executed(self, executed: Executed) -> None:
        if not self._running:
            return
        if executed.status != Status.DONE:
            self._counters["thresholds-unread"] += 1
            self._later(RETRY_S)
            return
        self._later(self._own.follow_s)
        try:
            got = requests.got_of(executed.body)
        except WireError:
            self._counters["thresholds-unread"] += 1
            return
        self._take(None if got is None or got.deleted else got)

    def _take(self, got: Got | None) -> None:
        seen = got.id if got is not None else b""
        if seen == self._seen:
            return
        self._seen = seen
        found = recommended(got.data) if got is not None else Recommended({}, [])
        version = got.version if got is not None else 0
        for name, reason in found.ignored[:IGNORED_MAX]:
            self._world.emit(ThresholdIgnored(version, name, reason))
        self._counters["thresholds-ignored"] += len(found.ignored)
        self._counters["thresholds-followed"] += 1
        self._world.emit(ThresholdsFollowed(version, tuple(found.values.items())))
        self._follow(replace(self._own, **found.values))
