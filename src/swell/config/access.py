"""What an operation on configurations takes: rights on its application and names.

Bodies are read by the same decoder as the machine's, so that both see the same names.
"""

from __future__ import annotations

from collections.abc import Iterable

from swell.access.grants import Right
from swell.config import operations as ops
from swell.overlay.sessions import Access


def refusal(access: Access, body: bytes) -> str:
    """Why this operation may not be; empty if it may."""
    try:
        request = ops.decode(body)
    except ops.BadOperationError as error:
        return str(error)
    match request:
        case ops.Publish():
            names = (edit.name for edit in request.edits)
            return _first(access, Right.WRITE, request.application, names)
        case ops.Stage():
            return access.refusal(Right.WRITE, request.application, None)
        case ops.SetOptions():
            return access.refusal(Right.WRITE, request.application)
        case ops.Get() | ops.ReadRange() | ops.GetLeaves() | ops.GetHistory():
            return access.refusal(Right.READ, request.application, request.name)
        case ops.ListNames():
            return access.refusal(Right.READ, request.application, request.prefix)
    return "this takes full access: use an administrator's certificate"


def follow_refusal(access: Access, application: str, interest: Iterable[str]) -> str:
    """Why a container may not subscribe to this; an empty interest is everything."""
    return _first(access, Right.READ, application, _prefixes(interest))


def belong_refusal(access: Access, owner: str) -> str:
    """Why a container may not call this application its own: it takes any right on it."""
    if any(access.may(right, owner, None) for right in Right):
        return ""
    return access.refusal(Right.READ, owner, None)


def may_relay(access: Access, application: str, interest: Iterable[str]) -> bool:
    """Whether a container may pass this on to its siblings."""
    return not _first(access, Right.RELAY, application, _prefixes(interest))


def outcome_refusal(access: Access, application: str) -> str:
    """Why the progress of a step may not be told: it takes any right to read or to write."""
    if access.may(Right.WRITE, application, None):
        return ""
    return access.refusal(Right.READ, application, None)


def _prefixes(interest: Iterable[str]) -> list[str]:
    return [entry.removesuffix("*") for entry in interest] or [""]


def _first(access: Access, right: Right, application: str, names: Iterable[str]) -> str:
    """The first refusal among these names."""
    return next(filter(None, (access.refusal(right, application, name) for name in names)), "")
