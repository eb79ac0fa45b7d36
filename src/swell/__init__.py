"""Swell pushes configuration, service state and messages to every container of a fleet.

At most three hops, only what changed, and proof of who has it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swell.client import edits as edits
    from swell.client.blocking import connect_sync as connect_sync
    from swell.client.connection import connect as connect
    from swell.client.documents import Document as Document
    from swell.client.documents import Update as Update
    from swell.client.values import ABSENT as ABSENT
    from swell.client.values import Publication as Publication
    from swell.client.values import Value as Value
    from swell.client.waiting import Report as Report

__version__ = "0.1.0"

_LAZY = {
    "ABSENT": "swell.client.values",
    "Document": "swell.client.documents",
    "Publication": "swell.client.values",
    "Report": "swell.client.waiting",
    "Update": "swell.client.documents",
    "Value": "swell.client.values",
    "connect": "swell.client.connection",
    "connect_sync": "swell.client.blocking",
    "edits": "swell.client.edits",
}
"""Loaded when first used: whoever imports a part of Swell does not pay for the client."""


def __getattr__(name: str) -> Any:
    place = _LAZY.get(name)
    if place is None:
        raise AttributeError(f"module 'swell' has no attribute {name!r}")
    module = import_module(place)
    return module if place.endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*_LAZY, "__version__"])
