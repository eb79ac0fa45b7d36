"""Changes of configurations, to be published together as one step.

await configs.publish([
    edits.put("db.json", b"{}"),
    edits.set("app.toml", "server.port", "8080"),
    edits.delete("old.json"),
])
"""

from __future__ import annotations

from swell.client.values import Condition, check_condition
from swell.config.edits import Delete, Path, Rollback, Whole
from swell.config.edits import Edit as Edit


def put(name: str, data: bytes | str, condition: Condition = None) -> Whole:
    """The value is this from now on; of any length up to the cluster's limit."""
    value = data.encode() if isinstance(data, str) else bytes(data)
    return Whole(name, value, check_condition(condition))


def set(
    name: str, path: str, text: str, as_text: bool = False, condition: Condition = None
) -> Path:
    """Set one key of a JSON, YAML, TOML or key=value document, which is created if there is none.
    `as_text`: the text is a string whatever it looks like."""
    return Path(name, path, text, as_text, check_condition(condition))


def unset(name: str, path: str, condition: Condition = None) -> Path:
    """Remove one key of a document."""
    return Path(name, path, None, condition=check_condition(condition))


def delete(name: str, condition: Condition = None) -> Delete:
    """A deletion is a version; what does not exist stays as it is."""
    return Delete(name, check_condition(condition))


def rollback(name: str, version: int, condition: Condition = None) -> Rollback:
    """A new version that is what a kept one was."""
    return Rollback(name, version, check_condition(condition))
