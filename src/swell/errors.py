"""Typed errors: fields for programs, one sentence for people to act on."""

from __future__ import annotations


class SwellError(Exception):
    """Base of all errors that Swell raises on purpose. `str(error)` is a sentence for the user."""


class WireError(SwellError):
    """Bytes from a peer broke the protocol. `reason` is the name of the counter it goes to."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        super().__init__(f"{reason}: {detail}" if detail else reason)


class InvalidNameError(SwellError):
    """A name does not follow the rules of `swell.ids`."""


class ConfigurationError(SwellError):
    """Settings, files or directories that contradict each other; the sentence says what to do."""


class RefusedError(SwellError):
    """A peer refused us for good: wrong cluster, name in use, not admitted."""

    def __init__(self, code: str, sentence: str) -> None:
        self.code = code
        super().__init__(sentence)


class UnavailableError(SwellError):
    """Nobody who could answer did so in time; trying again later is reasonable."""


class TooLargeError(SwellError):
    """Something is longer than its limit; the sentence names both."""


class InvalidKeyError(SwellError):
    """A key does not follow the rules of `swell.dht.keys`."""


class OutcomeUnknownError(SwellError):
    """It may have been executed, or be executed yet by an attempt that is still on its way; never
    twice. Look before doing it again."""
