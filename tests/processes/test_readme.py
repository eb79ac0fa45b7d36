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
    blocks = re.findall(r"```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("swell ")]


def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    commands = _commands()
    assert commands[0].startswith("swell up")
    assert "swell down" in commands
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
