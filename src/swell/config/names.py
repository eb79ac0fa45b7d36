"""What may be the name of an application or a configuration, and where an application is placed.

Names are text in the manner of a path (`swell.ids.check_path`), in the normal form NFC so that what
looks the same is the same. Those that begin with `@` are kept for what the system itself publishes.
"""

from __future__ import annotations

from functools import lru_cache
from unicodedata import is_normalized
from zlib import crc32

from swell.errors import InvalidNameError
from swell.ids import check_path

APPLICATION_BYTES_MAX = 255
CONFIGURATION_BYTES_MAX = 512

RESERVED = "@"

NAMES_MAX = 4096
"""Names that are remembered: those in use are checked with every change."""

INSTANCES = "@instances"
"""The list of a service's instances (`swell.services.instances`)."""


@lru_cache(NAMES_MAX)
def place(application: str) -> int:
    """Modulo the number of slots: the slot of an application (RIP-1)."""
    return crc32(application.encode())


def check_application(name: str, reserved: bool = False) -> str:
    """The name if it follows the rules, else `InvalidNameError`. `reserved`: may begin with `@`."""
    return _checked(name, "name of the application", APPLICATION_BYTES_MAX, reserved)


def check_configuration(name: str, reserved: bool = False) -> str:
    """As `check_application`."""
    return _checked(name, "name of the configuration", CONFIGURATION_BYTES_MAX, reserved)


def _checked(name: str, what: str, bytes_max: int, reserved: bool) -> str:
    if not isinstance(name, str):
        raise InvalidNameError(f"the {what} is text, not {type(name).__name__}")
    return _checked_text(name, what, bytes_max, reserved)


@lru_cache(NAMES_MAX)
def _checked_text(name: str, what: str, bytes_max: int, reserved: bool) -> str:
    try:
        data = name.encode()
    except UnicodeEncodeError:
        raise InvalidNameError(f"the {what} {name!r} is not UTF-8: write it in UTF-8") from None
    check_path(data, what, bytes_max, InvalidNameError)
    if not is_normalized("NFC", name):
        raise InvalidNameError(f"the {what} {name!r} is not in the normal form NFC: normalize it")
    if name.startswith(RESERVED) and not reserved:
        raise InvalidNameError(f"the {what} {name!r} begins with '@', which is reserved: leave it")
    return name
