"""What a session may do: everything, nothing, or what the grants of a token say.

Names are compared character by character. A pattern's wildcard is its own last character and
never one of the name that is asked for; no wildcard reaches a name that begins with `@`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated
from unicodedata import is_normalized

from msgspec import Meta

from swell.errors import InvalidNameError
from swell.ids import check_path
from swell.wire.codec import Message

DHT = "@dht"
"""Stands for the DHT where an application is named; its keys are the names."""

APPLICATION_BYTES_MAX = 255
PREFIX_BYTES_MAX = 512
GRANTS_MAX = 64

_SHOWN_MAX = 80
"""Characters of a name that a sentence repeats."""


class Right(StrEnum):
    READ = "read"
    WRITE = "write"
    RELAY = "relay"


class Grant(Message, frozen=True):
    """`application`: exact, or with a `*` at its end every one that begins like it."""

    application: str
    prefix: str
    rights: Annotated[tuple[Right, ...], Meta(min_length=1, max_length=len(Right))]

    def covers(self, right: str, application: str, name: str | None) -> bool:
        """Whether it allows this; without a name: for any name at all."""
        if right not in self.rights:
            return False
        pattern = self.application
        if pattern.endswith("*"):
            if application.startswith("@") or not application.startswith(pattern[:-1]):
                return False
        elif pattern != application:
            return False
        return name is None or name.startswith(self.prefix)

    def __str__(self) -> str:
        return place(self.application, self.prefix)


def place(application: str, name: str | None) -> str:
    """APP or APP/NAME, as options of commands write it; fit for a sentence."""
    text = f"{application}/{name}" if name else application
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= _SHOWN_MAX else shown[: _SHOWN_MAX - 1] + "…"


def parse_grant(text: str, right: Right) -> Grant:
    """What `--read APP[/PREFIX]` means."""
    application, _, prefix = text.partition("/")
    return check_grant(Grant(application, prefix, (right,)))


def check_grant(grant: Grant) -> Grant:
    """The grant, if a token may have it; else an error that says what to write."""
    application, prefix = grant.application, grant.prefix
    if application not in (DHT, "*"):
        check_path(
            _encoded(application.removesuffix("*"), "application"),
            "application", APPLICATION_BYTES_MAX, InvalidNameError,
        )  # fmt: skip
        if application.startswith("@"):
            raise InvalidNameError(f"{application} is no application: write @dht for the DHT")
        if not is_normalized("NFC", application + prefix):
            raise InvalidNameError(
                f"{place(application, prefix)} is not in the normal form NFC, as names are: "
                "normalize it"
            )
    if len(_encoded(prefix, "name prefix")) > PREFIX_BYTES_MAX or not prefix.isprintable():
        raise InvalidNameError(
            f"the name prefix {place(prefix, None)} is not valid: use at most "
            f"{PREFIX_BYTES_MAX} bytes of UTF-8 without control characters"
        )
    if "*" in prefix:
        raise InvalidNameError(
            f"the name prefix {prefix} is not valid: it needs no wildcard, leave out the *"
        )
    return grant


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidNameError(f"the {what} {text!a} is not UTF-8: write it in UTF-8") from None


def merge(grants: Iterable[Grant]) -> tuple[Grant, ...]:
    """One grant per place, with all its rights."""
    rights: dict[tuple[str, str], dict[Right, None]] = {}
    for grant in grants:
        rights.setdefault((grant.application, grant.prefix), {}).update(dict.fromkeys(grant.rights))
    return tuple(
        Grant(application, prefix, tuple(right for right in Right if right in held))
        for (application, prefix), held in rights.items()
    )


class Everything:
    """Access of nodes, administrators and the local mode."""

    everything = True
    token = ""

    def may(self, right: str, application: str, name: str | None = "") -> bool:
        return True

    def refusal(self, right: str, application: str, name: str | None = "") -> str:
        return ""


class Granted:
    """Access by a token. `name` is one name, empty for the whole application, None for any."""

    everything = False

    def __init__(self, grants: Sequence[Grant], token: str = "") -> None:
        self.grants = tuple(grants)
        self.token = token

    def may(self, right: str, application: str, name: str | None = "") -> bool:
        return any(grant.covers(right, application, name) for grant in self.grants)

    def refusal(self, right: str, application: str, name: str | None = "") -> str:
        """Why not, and what to ask for; empty if it may."""
        if self.may(right, application, name):
            return ""
        what = place(application, name)
        subject = what if name else f"application {what}"
        return f"this token may not {right} {subject}: ask for one with --{right} {what}"


class Nothing:
    """Access of a client that has shown no token."""

    everything = False
    token = ""

    def may(self, right: str, application: str, name: str | None = "") -> bool:
        return False

    def refusal(self, right: str, application: str, name: str | None = "") -> str:
        what = place(application, name)
        return (
            f"to {right} {what} takes a token: make one with "
            f"`swell token create --{right} {what}` and set SWELL_TOKEN"
        )


EVERYTHING = Everything()
NOTHING = Nothing()
