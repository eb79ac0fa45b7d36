"""The proof of a YAML edit: the result, read again, is the document with that one path changed.

YAML has more ways to write a thing than any editor foresees. So an edit is made on the text, and
then both texts are compared in plain form; what does not come out as wanted is refused.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from swell.config.formats.literal import Number, Plain
from swell.config.formats.path import Steps, show_path
from swell.config.formats.yaml_nodes import Node, parse, resolve
from swell.config.splices import Splice, apply_to
from swell.errors import EditRefusedError, InvalidContentError

Tree: TypeAlias = Any
"""Scalars as (type, text), sequences as lists, mappings as dicts with such keys."""


def tree(node: Node) -> Tree:
    """The plain form of what is written; an alias stands for itself."""
    match node.kind:
        case "mapping":
            return {_key(tree(key)): tree(value) for key, value in node.pairs()}
        case "sequence":
            return [tree(child) for child in node.children]
        case "null":
            return ("null", "")
        case "bool":
            return ("bool", node.value.lower())
        case kind:
            return (kind, node.value)


def _key(key: Tree) -> Tree:
    return key if isinstance(key, tuple) else repr(key)


def tree_of(value: Plain) -> Tree:
    """The plain form of a new value."""
    if isinstance(value, dict):
        return {("str", key): tree_of(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [tree_of(inner) for inner in value]
    if isinstance(value, Number):
        return (resolve(value.text), value.text)
    if isinstance(value, bool):
        return ("bool", str(value).lower())
    return ("null", "") if value is None else ("str", value)


def prove_set(
    data: bytes, root: Node | None, splices: tuple[Splice, ...], steps: Steps, value: Plain
) -> tuple[Splice, ...]:
    """The splices, if they do what they should."""
    present = tree(root) if root is not None else None
    expected = _assigned(present, steps, tree_of(value))
    return _proven(data, splices, steps, expected)


def prove_unset(
    data: bytes, root: Node, splices: tuple[Splice, ...], steps: Steps
) -> tuple[Splice, ...]:
    """The splices, if they do what they should."""
    expected = inner = tree(root)
    for step in steps[:-1]:
        inner = inner[_found(inner, step)]
    del inner[_found(inner, steps[-1])]
    return _proven(data, splices, steps, expected)


def _assigned(present: Tree, steps: Steps, value: Tree) -> Tree:
    """`present` (None: nothing) with a path set."""
    if not steps:
        return value
    step = steps[0]
    if isinstance(step, str):
        mapping = present if isinstance(present, dict) else {}
        key = _found(mapping, step)
        mapping[key] = _assigned(mapping.get(key), steps[1:], value)
        return mapping
    sequence = present if isinstance(present, list) else []
    if isinstance(step, int):
        sequence[step] = _assigned(sequence[step], steps[1:], value)
    else:
        sequence.append(_assigned(None, steps[1:], value))
    return sequence


def _found(container: Tree, step: object) -> Any:
    """The key that a step means: keys are compared by their text."""
    if not isinstance(step, str):
        return step
    keys = (key for key in container if isinstance(key, tuple) and key[1] == step)
    return next(keys, ("str", step))


def _proven(
    data: bytes, splices: tuple[Splice, ...], steps: Steps, expected: Tree
) -> tuple[Splice, ...]:
    try:
        roots = parse(apply_to(data, splices)).roots
    except InvalidContentError:
        roots = []
    if len(roots) != 1 or tree(roots[0]) != expected:
        raise EditRefusedError(
            f"{show_path(steps)} cannot be edited in the way this YAML is written:"
            " change the text and put it as a whole"
        )
    return splices
