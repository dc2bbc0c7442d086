"""The architecture: who may import whom, and what starts quickly."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tradewind.version import VERSION

PACKAGE = Path(__file__).parent.parent / "src" / "tradewind"

# From top to bottom: a module may import only what stands on a line below its own. The lines are those of
# the design, some of them split in two where one module of a line builds on another.
LAYERS = [
    ["cli"],
    ["commands"],
    ["bench"],
    ["dashboard"],
    ["report"],
    ["cluster"],
    ["analysis"],
    ["estimators"],
    ["run"],
    ["models", "crew", "rerun", "cleaning", "watch"],
    ["schedule"],
    ["search", "engine", "train"],
    ["augment", "workloads", "studies"],
    ["imports"],
    ["csv_records"],
    ["troubles"],
    ["results"],
    ["ended_trials", "best", "ranking"],
    ["counting"],
    ["reading"],
    ["columns", "table", "foreign", "progress"],
    ["binning"],
    ["columns", "table", "foreign"],
    ["journal", "claims"],
    ["folder", "extension"],
    ["study"],
    ["space", "code_folder", "jsonfile", "study_search"],
    ["where", "disturbance"],
    ["quantities", "soundness"],
    ["pack", "measures", "noise", "column_names"],
    ["stopping"],
    ["machine", "occupancy"],
    ["version", "errors"],
]
FLOOR = {name: len(LAYERS) - number for number, names in enumerate(LAYERS) for name in names}


def imports(path: Path) -> set[str]:
    """The parts of the package that a module imports, wherever in its text."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute here"
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names}
                if node.module == "tradewind"
                else {node.module}
            )
    return {name.split(".")[1] for name in found if name.startswith("tradewind.")} & FLOOR.keys()


def modules() -> list[tuple[str, Path]]:
    parts = [(path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path) for path in PACKAGE.rglob("*.py")]
    return sorted((name, path) for name, path in parts if not name.startswith("__"))


def test_every_module_has_its_place_in_the_layers() -> None:
    assert {name for name, _ in modules()} <= FLOOR.keys()


@pytest.mark.parametrize(("name", "path"), modules(), ids=lambda x: x.name if isinstance(x, Path) else x)
def test_a_module_imports_only_what_stands_below_it(name: str, path: Path) -> None:
    wrong = {other for other in imports(path) if other != name and FLOOR[other] >= FLOOR[name]}
    assert not wrong, f"{path} imports {wrong}"


def test_the_package_and_its_project_file_name_the_same_version() -> None:
    project = (PACKAGE.parent.parent / "pyproject.toml").read_text()
    assert f'version = "{VERSION}"' in project


def test_modules_stay_short() -> None:
    long = {str(path): lines for _, path in modules() if (lines := path.read_text().count("\n")) > 320}
    assert not long


def loaded_by(code: str, *watched: str) -> set[str]:
    """Which of the watched modules are loaded after running this code in a new interpreter."""
    check = f"{code}\nimport sys\nprint(*[m for m in {watched!r} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return set(answer.stdout.splitlines()[-1].split())


def test_help_loads_neither_torch_nor_pandas_nor_numpy() -> None:
    code = (
        "import sys\nsys.argv = ['tradewind', '--help']\n"
        "from tradewind.cli import main\ntry:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
    )
    assert loaded_by(code, "torch", "pandas", "numpy", "pydantic") == set()


def test_checking_a_study_does_not_load_torch() -> None:
    code = "from tradewind.commands import check_command\ncheck_command('quick', None, [], True)"
    assert loaded_by(code, "torch", "pandas", "duckdb") == set()


def test_training_imports_with_torch_and_numpy_alone() -> None:
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {'pydantic', 'pydantic_core', 'typer', 'rich', 'pandas', 'duckdb', 'optuna'}:
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
import tradewind.train.plain, tradewind.train.trainer, tradewind.augment.affine, tradewind.workloads.storm
"""
    assert loaded_by(code, "torch", "pydantic") == {"torch"}
