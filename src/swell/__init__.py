"""Swell pushes configuration, service state and messages to every container of a fleet.

At most three hops, only what changed, and proof of who has it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swell.client.blocking import connect_sync as connect_sync
    from swell.client.connection import connect as connect

__version__ = "0.1.0"

_LAZY = {"connect": "swell.client.connection", "connect_sync": "swell.client.blocking"}
"""Loaded when first used: whoever imports a part of Swell does not pay for the client."""


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'swell' has no attribute {name!r}")
    return getattr(import_module(module), name)
