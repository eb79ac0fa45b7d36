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


class StaleVersionError(SwellError):
    """A configuration is not at the version that a change was made for; nothing was changed.
    `version` and `id` are the present ones, 0 and twenty zero bytes if it never existed."""

    def __init__(self, name: str, version: int, id: bytes, deleted: bool, sentence: str) -> None:
        self.name = name
        self.version = version
        self.id = id
        self.deleted = deleted
        super().__init__(sentence)


class InvalidContentError(SwellError):
    """A configuration is not what its format asks for; `line` and `column` count from 1."""

    def __init__(self, line: int, column: int, problem: str) -> None:
        self.line = line
        self.column = column
        self.problem = problem
        super().__init__(line, column, problem)  # all of them, so that it survives pickling

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.problem}"


class InvalidPathError(SwellError):
    """A path into a configuration is not written as `swell.config.formats.path` says."""


class PathNotFoundError(SwellError):
    """A path names nothing in this configuration."""


class EditRefusedError(SwellError):
    """A path edit that this configuration does not allow; the sentence says what to do instead."""
