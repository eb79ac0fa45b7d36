"""The commands that README.md shows work as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _commands() -> list[str]:
    """Those of blocks without a language; jobs of the pipeline are for `tests/pipeline`."""
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    lines = [line for language, block in blocks if not language for line in block.splitlines()]
    commands = [line.split("#")[0].strip() for line in lines]
    return [
        command
        for command in commands
        if command.startswith("swell ") and not command.startswith("swell pipeline ")
    ]


def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    commands = _commands()
    assert commands[0].startswith("swell up")
    assert "swell down" in commands
    assert "swell node --help" in commands
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "COLUMNS": "120"}
    try:
        for command in commands:
            done = subprocess.run(
                shlex.split(command),
                cwd=tmp_path,
                env=env,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, f"{command}: {done.stderr}"
            assert done.stdout.strip(), f"{command} printed nothing"
    finally:
        subprocess.run(["swell", "down"], cwd=tmp_path, env=env, capture_output=True, check=False)
