"""JSON files read strictly, with the place of a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tradewind.errors import StudyError


def read_json(path: Path) -> Any:
    """The content of a JSON file; strict (no NaN, no key twice), with the place of a fault."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise StudyError(f"{path}: key {next(n for n in names if names.count(n) > 1)!r} stands twice; keep one")
        return found

    def constant(text: str) -> None:
        raise StudyError(f"{path}: found {text}; allowed: finite numbers")

    try:
        return json.loads(path.read_bytes().decode(), object_pairs_hook=once, parse_constant=constant)
    except FileNotFoundError:
        raise StudyError(f"{path}: no such file; `tradewind studies` lists the bundled ones") from None
    except OSError as error:
        raise StudyError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StudyError(f"{path}: not a text file in UTF-8") from None
    except json.JSONDecodeError as error:
        raise StudyError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise StudyError(f"{path}: nested too deeply; a study has three levels") from None
