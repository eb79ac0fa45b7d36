"""Finding nodes of a YAML document: one step at a time, through aliases and merges."""

from __future__ import annotations

from swell.config.formats.path import Steps, not_a, wanted
from swell.config.formats.yaml_nodes import Document, Node, is_merge
from swell.errors import EditRefusedError


def single(document: Document) -> Node | None:
    """The root of a text with one document; None if it is empty."""
    if len(document.roots) > 1:
        raise EditRefusedError(
            f"the text holds {len(document.roots)} YAML documents: put it as a whole"
        )
    return document.roots[0] if document.roots else None


def is_blank(node: Node) -> bool:
    """Whether nothing is written here: a key without a value."""
    return node.kind == "null" and node.outer == node.end


def followed(document: Document, node: Node) -> Node:
    """The node itself, or what it is an alias of."""
    while node.kind == "alias":
        node = document.targets[node.outer]
    return node


def child(node: Node, steps: Steps, depth: int) -> Node | None:
    """What a step names in a collection, if it is there. Keys are compared by their text."""
    step = steps[depth]
    if node.kind != ("mapping" if isinstance(step, str) else "sequence"):
        raise not_a(wanted(steps, depth), steps, depth)
    if isinstance(step, str):
        return _member(node, step)
    if isinstance(step, int) and -len(node.children) <= step < len(node.children):
        return node.children[step]
    return None


def _member(node: Node, key: str) -> Node | None:
    for written, value in node.pairs():
        if written.value == key and not written.children and written.kind != "alias":
            return value
    return None


def merged(document: Document, node: Node, key: str) -> Node | None:
    """What a key means in a mapping by merging others into it (`<<`)."""
    waiting = [node]
    while waiting:
        for written, value in waiting.pop().pairs():
            if not is_merge(written):
                continue
            value = followed(document, value)
            sources = value.children if value.kind == "sequence" else [value]
            for source in (followed(document, inner) for inner in sources):
                if source.kind != "mapping":
                    continue
                found = _member(source, key)
                if found is not None:
                    return found
                waiting.append(source)
    return None
