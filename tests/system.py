"""What tests need of the system beyond Python: installed only where somebody has asked for it.

With CI=true or SYSTEM=1, as root with apt, missing programs come from the distribution's packages; otherwise the
tests that need them are skipped, with one loud line at the end that names them.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

SKIPPED = "not on this machine"
HOW = "run them as root on Debian with: SYSTEM=1 make test-system"


def may_install() -> bool:
    """Whether system packages may be installed."""
    asked = os.environ.get("CI") == "true" or os.environ.get("SYSTEM") == "1"
    return asked and os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(*packages: str) -> None:
    """Install from the distribution's packages."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        subprocess.run(["apt-get", "-qq", *words], env=env, stdout=subprocess.DEVNULL, check=True, timeout=300)


def skip(what: str) -> None:
    """Skip the test that needs this."""
    pytest.skip(f"{SKIPPED}: {what}; {HOW}")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's program."""
    if not shutil.which("chromium") and may_install():
        install("chromium")
    found = shutil.which("chromium")
    if found is None:
        skip("chromium")
    return str(found)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One loud line that names what was not tested."""
    reports = terminalreporter.stats.get("skipped", [])
    names = [report.nodeid for report in reports if SKIPPED in str(report.longrepr)]
    if names:
        terminalreporter.write_line(f"NOT TESTED, {SKIPPED}: {', '.join(names)}; {HOW}", red=True, bold=True)
