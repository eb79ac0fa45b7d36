"""The shape of the code: layers, rule zero, and sizes, checked on the syntax tree of `src/swell`.

Layers: a package imports only from those above it (ARCHITECTURE.md). Rule zero: protocol code
decides and never acts, so it imports nothing that reads a clock, a socket or chance. Each check is
also shown to bite, on small trees with one fault.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "swell"

# From top to bottom. Names on one line are siblings and do not import each other, except in the
# first line, which is one thing: the seam.
LAYERS = (
    ("world", "errors", "ids", "events", "settings"),
    ("wire",),
    ("journal",),
    ("rings",),
    ("overlay",),
    ("directory",),
    ("access",),
    ("store",),
    ("dht", "config"),
    ("services", "topics", "board"),
    ("placement",),
    ("operations",),
    ("node",),
    ("client.session",),
    ("container",),
    ("runtime", "simulation"),
    ("client",),
    ("pipeline",),
    ("lab",),
    ("http",),
    ("cli",),
    ("__main__",),
)
DEPTH = {name: depth for depth, names in enumerate(LAYERS) for name in names}
PROTOCOL_DEPTH_MAX = DEPTH["container"]

FORBIDDEN = frozenset(
    [
        "asyncio",
        "concurrent",
        "datetime",
        "multiprocessing",
        "os",
        "random",
        "secrets",
        "select",
        "selectors",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "threading",
        "time",
        "uuid",
        "uvloop",
    ]
)
VAGUE = frozenset(["helper", "helpers", "manager", "managers", "misc", "util", "utils"])

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70


def problems(source: Path) -> list[str]:
    """Everything wrong with the tree below `source`, one line each."""
    found: list[str] = []
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        where = "/".join(parts)
        found += (f"{where}: {problem}" for problem in layer_problems(tree, parts))
        found += (f"{where}: {problem}" for problem in rule_zero_problems(tree, parts))
        found += (f"{where}: {problem}" for problem in style_problems(tree, text, parts))
    return found


def layer_problems(tree: ast.Module, parts: tuple[str, ...]) -> Iterator[str]:
    own = layer_of(parts)
    if own == "__init__":  # imported by everybody: it may name our things, not load them
        found = imports(tree, parts)
        yield from (f"imports {name}" for name, typing in found if is_ours(name) and not typing)
        return
    if own not in DEPTH:
        yield f"{own} has no layer: give it one"
        return
    for name, _ in imports(tree, parts):
        if not is_ours(name) or name == "swell":
            continue
        other = layer_of(tuple(name.split(".")[1:]))
        if other == own or other == "__version__":
            continue
        if other not in DEPTH:
            yield f"imports {other}, which has no layer"
        elif DEPTH[other] > DEPTH[own]:
            yield f"{own} imports {other}, which is below it"
        elif DEPTH[other] == DEPTH[own] > 0:
            yield f"{own} imports its sibling {other}"


def layer_of(parts: tuple[str, ...]) -> str:
    """A client's session runs in both worlds and lies above them; its facades lie below."""
    return "client.session" if is_session(parts) else parts[0]


def is_session(parts: tuple[str, ...]) -> bool:
    return parts[0] == "client" and len(parts) > 1 and "session" in parts[1].split("_")


def rule_zero_problems(tree: ast.Module, parts: tuple[str, ...]) -> Iterator[str]:
    if not is_protocol(parts):
        return
    for name, typing_only in imports(tree, parts):
        root = name.split(".")[0]
        # `Random` is injected by the world; only its name is needed, to say so.
        named_only = root == "random" and (typing_only or parts == ("world",))
        if root in FORBIDDEN and not named_only:
            yield f"protocol code imports {root}"


def style_problems(tree: ast.Module, text: str, parts: tuple[str, ...]) -> Iterator[str]:
    lines = text.count("\n")
    if lines > MODULE_LINES_MAX:
        yield f"{lines} lines, at most {MODULE_LINES_MAX}"
    for part in parts:
        if VAGUE & set(part.split("_")):
            yield f"{part} says nothing: name the idea"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"


def is_ours(name: str) -> bool:
    return name == "swell" or name.startswith("swell.")


def is_protocol(parts: tuple[str, ...]) -> bool:
    if parts[0] == "client":  # its facades are asyncio; its session runs in both worlds
        return is_session(parts)
    return DEPTH.get(parts[0], PROTOCOL_DEPTH_MAX + 1) <= PROTOCOL_DEPTH_MAX


def imports(tree: ast.Module, parts: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    """Full names of everything imported anywhere in the module; True: for typing only."""
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in typing_only
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = ("swell", *parts)[: -node.level]
                base = ".".join((*package, base)).rstrip(".")
            for alias in node.names:
                # `from swell import wire` names a package by the alias.
                full = f"{base}.{alias.name}" if base == "swell" else base
                yield full, id(node) in typing_only


def test_the_tree_is_sound() -> None:
    assert problems(SOURCE) == []


def test_something_was_looked_at() -> None:
    assert (SOURCE / "world.py").exists()
    assert len(list(SOURCE.rglob("*.py"))) > 10


def write(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("wire/codec.py", "from swell.overlay import links", "wire imports overlay"),
        ("wire/codec.py", "import swell.overlay.links", "wire imports overlay"),
        ("wire/codec.py", "from swell import overlay", "wire imports overlay"),
        ("wire/codec.py", "from ..overlay import links", "wire imports overlay"),
        ("wire/codec.py", "from .. import overlay", "wire imports overlay"),
        ("overlay/links.py", "def f():\n    import swell.directory", "overlay imports directory"),
        (
            "overlay/links.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import swell.directory.x",
            "overlay imports directory",
        ),
        ("runtime/world.py", "import swell.simulation.world", "its sibling simulation"),
        ("dht/table.py", "from swell.config.value import Value", "its sibling config"),
        ("node.py", "import swell.runtime.world", "node imports runtime"),
        ("settings/__init__.py", "import swell.wire.codec", "settings imports wire"),
        ("__init__.py", "import swell.cli.main", "imports swell.cli.main"),
        ("extras/thing.py", "", "extras has no layer"),
        ("rings/ring.py", "import swell.extras", "extras, which has no layer"),
    ],
)
def test_layers_bite(tmp_path: Path, path: str, text: str, complaint: str) -> None:
    found = problems(write(tmp_path, path, text))
    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize("module", sorted(FORBIDDEN))
@pytest.mark.parametrize("path", ["rings/ring.py", "overlay/links.py", "node.py"])
def test_rule_zero_bites(tmp_path: Path, path: str, module: str) -> None:
    text = f"def f():\n    import {module}.part as x\n"
    assert f"protocol code imports {module}" in problems(write(tmp_path, path, text))[0]


@pytest.mark.parametrize(
    ("path", "text", "allowed"),
    [
        ("runtime/world.py", "import asyncio, time", True),
        ("client/facade.py", "import asyncio", True),
        ("client/session.py", "import asyncio", False),
        ("client/store_session.py", "import asyncio", False),
        ("client/session/state.py", "import time", False),
        ("world.py", "from random import Random", True),
        ("world.py", "import time", False),
        ("overlay/x.py", "from random import Random", False),
        ("overlay/x.py", "if TYPE_CHECKING:\n    from random import Random", True),
        ("overlay/x.py", "if TYPE_CHECKING:\n    import asyncio", False),
        ("overlay/x.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import random", False),
        ("overlay/x.py", "import timeit_like, ospath", True),
    ],
)
def test_rule_zero_knows_its_limits(tmp_path: Path, path: str, text: str, allowed: bool) -> None:
    assert (problems(write(tmp_path, path, text)) == []) is allowed


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("rings/ring.py", "x = 1\n" * 601, "601 lines"),
        ("rings/ring.py", "def f():\n" + "    x = 1\n" * 70, "f has 71 lines"),
        ("rings/utils.py", "", "utils says nothing"),
        ("rings/ring_manager.py", "", "ring_manager says nothing"),
        ("rings/misc/ring.py", "", "misc says nothing"),
    ],
)
def test_style_bites(tmp_path: Path, path: str, text: str, complaint: str) -> None:
    found = problems(write(tmp_path, path, text))
    assert len(found) == 1
    assert complaint in found[0]


def test_sound_tree_passes(tmp_path: Path) -> None:
    write(tmp_path, "__init__.py", '__version__ = "0"')
    write(tmp_path, "world.py", "from random import Random\nfrom swell.events import Event")
    write(tmp_path, "cli/main.py", "from swell import __version__\nimport swell.runtime.world")
    write(tmp_path, "rings/ring.py", "from swell.rings.digest import half\n" + "x = 1\n" * 599)
    assert problems(tmp_path) == []
