"""JSON read strictly, with the place of a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tradewind.errors import StudyError

MOST_LEVELS = 50
MOST_DIGITS = 300


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise StudyError(f"{path}: no such file; `tradewind studies` lists the bundled ones") from None
    except OSError as error:
        raise StudyError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StudyError(f"{path}: not a text file in UTF-8") from None
    return parse_json(text, str(path))


def parse_json(text: str, place: str) -> Any:
    """The content of JSON text: no NaN, no key twice, no more levels than anybody needs."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise StudyError(f"{place}: key {next(n for n in names if names.count(n) > 1)!r} stands twice; keep one")
        return found

    def constant(text: str) -> None:
        raise StudyError(f"{place}: found {text}; allowed: finite numbers")

    def whole(text: str) -> int:
        if len(text) > MOST_DIGITS:
            raise StudyError(f"{place}: found {text[:12]}… of {len(text)} digits; allowed: {MOST_DIGITS} digits")
        return int(text)

    try:
        content = json.loads(text, object_pairs_hook=once, parse_constant=constant, parse_int=whole)
        json.dumps(content, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise StudyError(f"{place}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise StudyError(f"{place}: nested too deeply; allowed: {MOST_LEVELS} levels") from None
    except UnicodeEncodeError:
        raise StudyError(f"{place}: holds text that is not Unicode") from None
    if levels(content) > MOST_LEVELS:
        raise StudyError(f"{place}: nested too deeply; allowed: {MOST_LEVELS} levels")
    return content


def is_json(text: str) -> bool:
    """Whether text is meant as JSON; otherwise it stands for itself."""
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    except (RecursionError, ValueError):
        pass  # it is meant so; parse_json says what is wrong
    return True


def levels(content: Any) -> int:
    """How deeply lists and objects are nested, counted without recursion."""
    depth, here = 0, [content]
    while here:
        inner: list[Any] = []
        for value in here:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
        depth, here = depth + 1, inner
    return depth
