"""Whether a study may go on in the folder of another: every trial of the old one must be one of the new."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from tradewind.pack import Value
from tradewind.study import Range, Study
from tradewind.study_search import GROWING, Search


def refusal(old: Study, new: Study, defaults: Mapping[str, Value]) -> str:
    """Why `new` does not merely extend `old`, or nothing."""
    for key in ("workload", "command", "purpose", "data", "stop", "seed", "data_seed"):
        before, after = getattr(old, key), getattr(new, key)
        if before != after:
            return f"{key} was {_plain(before)}, is now {_plain(after)}"
    if old.varying != new.varying:
        return f"vary was {_plain(old.varying)}, is now {_plain(new.varying)}"
    if why := _search_refusal(old.search, new.search):
        return why
    if not new.search.plain_grid:
        for key in ("space", "fixed", "where"):
            before, after = getattr(old, key), getattr(new, key)
            if before != after:
                return f"{key} was {_plain(before)}, is now {_plain(after)}, which only a plain grid may"
        if new.repeats > old.repeats and new.search.halving:  # of those pruned no other repeat was compared
            return f"repeats was {old.repeats}, is now {new.repeats}, which a search with halving can't make up for"
        return f"repeats was {old.repeats}, is now {new.repeats}; allowed: more" if new.repeats < old.repeats else ""
    if new.repeats < old.repeats:
        return f"repeats was {old.repeats}, is now {new.repeats}"
    if added := [text for text in new.where if text not in old.where]:
        return f"where has a new condition {added[0]!r}"
    for name in {**old.fixed, **old.space, **new.fixed, **new.space}:
        before, after = (_values(study, name, defaults) for study in (old, new))
        if lost := [value for value in before if value not in after]:
            return f"{name} was {_plain(before)}, is now {_plain(after)}, without {_plain(lost[0])}"
    return ""


def _search_refusal(old: Search, new: Search) -> str:
    """Why a search can't go on as another one: its budgets may grow, a missing one being without end."""
    fixed = dict.fromkeys((*GROWING, "direction", *(("metric",) if old.plain_grid and new.plain_grid else ())))
    if old.model_copy(update=fixed) != new.model_copy(update=fixed):
        return f"search was {_plain(old)}, is now {_plain(new)}"
    for name in GROWING:
        before, after = getattr(old, name), getattr(new, name)
        if before != after and (before is None or (after is not None and after < before)):
            return f"search.{name} was {_plain(before)}, is now {_plain(after)}; allowed: more"
    return ""


def _values(study: Study, name: str, defaults: Mapping[str, Value]) -> list[Value]:
    spec = study.space.get(name)
    if isinstance(spec, Range):
        return spec.values() if spec.steps else [(spec.low, spec.high, spec.log)]
    return spec if spec is not None else [study.fixed.get(name, defaults.get(name))]


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        value = {k: v.model_dump(exclude_defaults=True) if isinstance(v, BaseModel) else v for k, v in value.items()}
    return json.dumps(value.model_dump(exclude_defaults=True) if isinstance(value, BaseModel) else value)
