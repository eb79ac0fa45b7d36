"""Tokens on request: create one, list all, revoke one.

Whoever creates a token has drawn it: only its id and the hash of its secret come here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from swell.access.grants import GRANTS_MAX, Grant
from swell.access.token import HASH_BYTES, ID_LENGTH, LIFE_S_MAX, TokenRecord
from swell.errors import SwellError
from swell.operations.call import Call, InvalidArgumentError, Result

LISTED_MAX = 4096
"""Tokens in one answer."""


def create(call: Call) -> None:
    """Arguments: `id`, `hash` (hex), `grants` (lists of application, prefix, rights), `ttl_s`,
    `label`."""
    arguments, tokens = call.arguments, call.host.tokens
    id = call.text("id", ID_LENGTH)
    try:
        hash = bytes.fromhex(call.text("hash", 2 * HASH_BYTES))
        grants = msgspec.convert(arguments.get("grants"), tuple[Grant, ...])
    except (ValueError, msgspec.ValidationError) as error:
        raise InvalidArgumentError(f"the token cannot be read: {error}") from None
    ttl_s, label = arguments.get("ttl_s"), arguments.get("label", "")
    if not isinstance(ttl_s, int) or not 0 < ttl_s <= LIFE_S_MAX or not isinstance(label, str):
        raise InvalidArgumentError(
            f"a token needs 'ttl_s', 1 to {LIFE_S_MAX} seconds, and a text as 'label'"
        )
    if len(hash) != HASH_BYTES or not 1 <= len(grants) <= GRANTS_MAX:
        raise InvalidArgumentError(
            f"a token needs a hash of {HASH_BYTES} bytes and 1 to {GRANTS_MAX} grants"
        )
    now_s = tokens.now_s()
    record = TokenRecord(hash, grants, now_s + ttl_s, label, now_s)
    tokens.create(id, record, lambda made: _finish(call, id, made))


def revoke(call: Call) -> None:
    """Argument: `id`."""
    id = call.text("id", ID_LENGTH)
    call.host.tokens.revoke(id, lambda record: _finish(call, id, record))


def show(call: Call) -> None:
    """All that are kept, those that last longest first."""
    tokens = call.host.tokens

    def listed(records: dict[str, TokenRecord] | SwellError) -> None:
        if isinstance(records, SwellError):
            call.finish(records)
            return
        order = sorted(records.items(), key=lambda item: (-item[1].expires_s, item[0]))
        now_s = tokens.now_s()
        shown = [described(id, record, now_s) for id, record in order[:LISTED_MAX]]
        call.finish({"tokens": shown, "count": len(records)})

    tokens.all(listed)


def _finish(call: Call, id: str, outcome: TokenRecord | SwellError) -> None:
    if isinstance(outcome, SwellError):
        call.finish(outcome)
    else:
        call.finish(described(id, outcome, call.host.tokens.now_s()))


def described(id: str, record: TokenRecord, now_s: int) -> Result:
    state = "revoked" if record.revoked_s else "valid" if record.expires_s > now_s else "expired"
    grants: list[dict[str, Any]] = [
        {"application": g.application, "prefix": g.prefix, "rights": [*g.rights]}
        for g in record.grants
    ]
    return {
        "id": id,
        "label": record.label,
        "state": state,
        "grants": grants,
        "created_s": record.created_s,
        "expires_s": record.expires_s,
        "revoked_s": record.revoked_s,
    }
