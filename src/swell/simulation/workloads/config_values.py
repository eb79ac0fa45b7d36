"""What administrators publish: values of several formats, and edits of them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from swell.config.edits import Delete, Edit, Path, Rollback, Whole

NAMES = ("limits.json", "flags.properties", "notes.txt", "pay/fees.json", "pay/terms.txt", "r.toml")
KEYS = 12
LONG_BYTES = 70_000
"""Longer than what a primary resolves at once."""

LONG_SHARE = 0.01
BROKEN_SHARE = 0.02


def whole(rng: Random, name: str, mark: str) -> bytes:
    """A value that nobody wrote before."""
    chance = rng.random()
    if chance < BROKEN_SHARE and name.endswith(".json"):
        return b'{"mark": '
    rows = [(f"k{k}", f"{mark} {rng.randrange(1000)}") for k in range(rng.randint(1, KEYS))]
    rows.append(("mark", mark))
    if name.endswith(".json"):
        inside = ",\n".join(f'  "{key}": "{value}"' for key, value in rows)
        return f"{{\n{inside}\n}}\n".encode()
    if name.endswith(".toml"):
        return "".join(f'{key} = "{value}"\n' for key, value in rows).encode()
    lines = "".join(f"{key}={value}\n" for key, value in rows)
    if chance < LONG_SHARE and name.endswith(".txt"):
        lines += "x" * LONG_BYTES
    return lines.encode() if chance < 0.97 else b""


def edit(rng: Random, name: str, mark: str, seen: Sequence[int], condition: bytes | None) -> Edit:
    """One change; `seen`: versions that are known to exist."""
    chance = rng.random()
    if chance < 0.05:
        return Delete(name, condition)
    if chance < 0.12 and seen:
        return Rollback(name, rng.choice(seen), condition)
    if chance < 0.55 and not name.endswith(".txt"):
        key = f"k{rng.randrange(KEYS)}"
        return Path(name, key, None if chance < 0.15 else mark, True, condition)
    return Whole(name, whole(rng, name, mark), condition)
