"""Messages of the registry, numbers 60 to 63, on sessions of kind `DIRECTORY`.

docs/protocols/registry.md tells their use.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from swell.directory.registry import CHANGES_MAX, KEY_BYTES_MAX, Change, Entry, Key, Value
from swell.overlay.membership_messages import Count
from swell.wire.codec import Message, message

ANSWER_BYTES_MAX = 512 * 1024
"""Values of one answer, or of one piece of news, together; the first one is always told."""

Prefix = Annotated[str, Meta(max_length=KEY_BYTES_MAX, pattern=r"^[!-~]*\Z")]


class Held(Message, frozen=True):
    """What a key holds. Version 0: nothing. No value at another version: it had no room in this
    answer, or its receiver sent it himself."""

    version: Count
    value: Value | None


_NOTHING = Held(0, None)


def held(entry: Entry | None) -> Held:
    return _NOTHING if entry is None else Held(entry.version, entry.value)


@message(60)
class RegistryRequest(Message, frozen=True):
    """Node → leader: make these changes; or, if there are none, say what these keys hold."""

    number: Count
    changes: Annotated[tuple[Change, ...], Meta(max_length=CHANGES_MAX)]
    keys: Annotated[tuple[Key, ...], Meta(max_length=CHANGES_MAX)] = ()


@message(61)
class RegistryReply(Message, frozen=True):
    """Leader → node, in the order of the request; `accepted` is empty for reads."""

    number: Count
    accepted: tuple[bool, ...]
    held: tuple[Held, ...]


@message(62)
class RegistryWatch(Message, frozen=True):
    """Node → leader: tell me what is under the prefix, and what changes, while the link lasts."""

    prefix: Prefix


@message(63)
class RegistryNews(Message, frozen=True):
    """Leader → node. `complete`: with this, everything under the prefix has been told."""

    prefix: Prefix
    held: tuple[tuple[Key, Held], ...]
    complete: bool
