"""Where a program's token comes from."""

from __future__ import annotations

import os

from swell.access.token import parse

VARIABLE = "SWELL_TOKEN"


def find_token(token: str | None) -> str:
    """The token that was given, else that of the environment; empty: none. A text that is no token
    is told here, before any node is asked."""
    text = (os.environ.get(VARIABLE, "") if token is None else token).strip()
    return parse(text).text if text else ""
