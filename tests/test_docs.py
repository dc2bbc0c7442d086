"""The examples in the documentation work as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TRADEWIND

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)[ ]+(run|file=\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    blocks = BLOCK.findall(page.read_text())
    assert blocks, "a page without an example that runs"
    paths = os.pathsep.join([str(TRADEWIND.parent), os.environ["PATH"]])
    for language, what, text in blocks:
        if what != "run":
            (tmp_path / what.removeprefix("file=")).write_text(text)
            continue
        words = [sys.executable, "-c", text] if language == "python" else ["bash", "-euo", "pipefail", "-c", text]
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env={**os.environ, "PATH": paths},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


def test_every_command_is_in_the_readme() -> None:
    shown = subprocess.run([TRADEWIND, "--help"], capture_output=True, text=True, check=True).stdout
    commands = re.findall(r"^  (\w+) ", shown.partition("Commands:")[2], re.MULTILINE)
    assert "run" in commands
    missing = [name for name in commands if f"`tradewind {name} " not in (ROOT / "README.md").read_text()]
    assert not missing


def test_every_command_has_help_with_an_example() -> None:
    shown = subprocess.run([TRADEWIND, "--help"], capture_output=True, text=True, check=True).stdout
    for name in re.findall(r"^  (\w+) ", shown.partition("Commands:")[2], re.MULTILINE):
        page = subprocess.run([TRADEWIND, name, "--help"], capture_output=True, text=True, check=True).stdout
        assert f"Example: tradewind {name}" in " ".join(page.split()), name
