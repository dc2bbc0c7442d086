"""Workloads: what is trained. Bundled ones, and how a user's own is found."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from tradewind.errors import Mistake, WorkloadError, nearest
from tradewind.pack import Value
from tradewind.workloads.contract import Workload

BUNDLED = {
    "storm": "tradewind.workloads.storm:Storm",
    "digits": "tradewind.workloads.digits:Digits",
    "nodules": "tradewind.workloads.nodules:Nodules",
    "images": "tradewind.workloads.images:Images",
}


def find(reference: str, folder: Path) -> Any:
    """The class or function that a study names: bundled, "module:name" or "file.py:name"."""
    module, colon, name = BUNDLED.get(reference, reference).rpartition(":")
    if not colon:
        raise WorkloadError(f'workload {reference!r}: {nearest(reference, BUNDLED)}, or "module:name" of your own')
    target: Any = _import(reference, module, folder)
    for part in name.split("."):
        if not hasattr(target, part):
            names = [n for n, value in vars(target).items() if callable(value) and not n.startswith("_")]
            raise WorkloadError(f"workload {reference!r}: {module} has no {part!r}; {nearest(part, names)}")
        target = getattr(target, part)
    if not callable(target):
        raise WorkloadError(f"workload {reference!r} is a {type(target).__name__}; allowed: a class or a function")
    return target


def is_network(target: Any) -> bool:
    """Whether this is a workload class, with data and a model; otherwise it is a plain function."""
    return inspect.isclass(target) and all(hasattr(target, name) for name in ("data", "model", "loss", "scores"))


def make(target: Any, data: Mapping[str, Value]) -> Workload:
    """A workload built with the study's `data` as keyword arguments."""
    known = list(inspect.signature(target).parameters)
    for name in data:
        if name not in known:
            raise WorkloadError(f"data.{name}: not known to {target.__name__}; {nearest(name, known)}")
    try:
        return cast(Workload, target(**data))
    except Mistake:
        raise
    except Exception as error:
        raise WorkloadError(f"data: {target.__name__}({data}) raised {type(error).__name__}: {error}") from error


def data_identity(target: Any, data: Mapping[str, Value]) -> dict[str, Value]:
    """The study's `data` with the workload's defaults filled in: the same data, the same identity."""
    if not is_network(target):
        return dict(data)
    bound = inspect.signature(target).bind_partial(**data)
    bound.apply_defaults()
    return dict(bound.arguments)


LIBRARIES = (f"{sys.prefix}{os.sep}", f"{sys.base_prefix}{os.sep}")
_entered: list[tuple[str, set[str]]] = []  # the folder of the study that imports, and what was loaded before
_importing: list[str] = []


def being_imported() -> str:
    """The user's module that is being imported right now; a run must not start from there."""
    return _importing[-1] if _importing else ""


def _import(reference: str, module: str, folder: Path) -> ModuleType:
    _importing.append(module)
    try:
        if module.endswith(".py"):
            return _import_file(reference, (folder / module).resolve())
        _enter(folder)
        return importlib.import_module(module)
    except WorkloadError:
        raise
    except (Exception, SystemExit) as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f" ({at.filename}:{at.lineno})" if not at.filename.startswith("<frozen") else ""
        raise WorkloadError(
            f"workload {reference!r}: importing {module} raised {type(error).__name__}: {error}{place}; "
            f"looked in {folder} and in the installed packages"
        ) from error
    finally:
        _importing.pop()


def _enter(folder: Path) -> None:
    """Import from this study's folder first, and no longer what the study before has brought from its own."""
    here = str(folder)
    left, loaded = _entered[-1] if _entered else (here, set())
    if left != here:
        with suppress(ValueError):
            sys.path.remove(left)
    own = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    for name, file in [(name, getattr(module, "__file__", None) or "") for name, module in sys.modules.items()]:
        brought = left != here and name not in loaded and file.startswith(f"{left}{os.sep}")
        shadowed = name.partition(".")[0] in own and not file.startswith(f"{here}{os.sep}")
        if (brought or shadowed) and file and name != "__main__" and not file.startswith(LIBRARIES):
            del sys.modules[name]
    if sys.path[:1] != [here]:
        sys.path.insert(0, here)
    if left != here or not _entered:
        _entered[:] = [(here, set(sys.modules))]


def _import_file(reference: str, path: Path) -> ModuleType:
    _enter(path.parent)
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    if not path.exists():
        raise WorkloadError(f"workload {reference!r}: no such file: {path}")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found
