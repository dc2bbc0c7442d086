"""Tradewind: how should I train this? Tune and time many networks from one study.

Study, Space, run and Results are the nouns; `tradewind --help` is the same from the command line.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tradewind.version import VERSION

__version__ = VERSION


if TYPE_CHECKING:
    from tradewind.estimators.network import NetworkClassifier, NetworkRegressor
    from tradewind.estimators.search_cv import SearchCV
    from tradewind.results import Results
    from tradewind.run import run
    from tradewind.space import Space
    from tradewind.study import Study
    from tradewind.workloads.contract import Data, Hyperparameter, Split

__all__ = [
    "Data",
    "Hyperparameter",
    "NetworkClassifier",
    "NetworkRegressor",
    "Results",
    "SearchCV",
    "Space",
    "Split",
    "Study",
    "__version__",
    "run",
]

_HOMES = {
    "Data": "workloads.contract",
    "Hyperparameter": "workloads.contract",
    "NetworkClassifier": "estimators.network",
    "NetworkRegressor": "estimators.network",
    "Results": "results",
    "SearchCV": "estimators.search_cv",
    "Space": "space",
    "Split": "workloads.contract",
    "Study": "study",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import tradewind` costs nothing."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'tradewind' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"tradewind.{_HOMES[name]}"), name)
    return found


class _Package(ModuleType):
    """`tradewind.run` is the function, also once the module of that name has been imported."""

    @property
    def run(self) -> Any:
        """Run a study."""
        from tradewind.run import run

        return run

    @run.setter
    def run(self, module: ModuleType) -> None:
        """The import system names a package's modules in it; not this one."""


sys.modules[__name__].__class__ = _Package
