"""A problem as a study: run it, and read its records as scikit-learn's fits."""

from __future__ import annotations

import itertools
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tradewind.errors import Interrupted, Mistake, RunError, StudyError, nearest
from tradewind.estimators import folds
from tradewind.estimators.candidates import Params
from tradewind.estimators.network_study import chosen_of, network_study, networks_in
from tradewind.estimators.problem import Problem, held
from tradewind.folder import RunFolder
from tradewind.journal import Record
from tradewind.results import Results
from tradewind.run import run
from tradewind.schedule.trials import Trials
from tradewind.study import Study
from tradewind.study_search import LEARNING
from tradewind.watch import Quiet

ENGINES = ("auto", "serial", "processes")
FAILED = f"{folds.FitFailed.__name__}: "  # what the error of a fit that raised begins with

Fit = dict[str, Any]  # as scikit-learn's _fit_and_score returns it


@dataclass(frozen=True)
class Way:
    """How candidates are found, and where they are fitted."""

    method: str
    trials: int | None
    seed: int
    options: dict[str, Any]
    metrics: list[str]  # what an adaptive search goes by
    engine: str
    n_jobs: int | None
    out: Path | None

    def search(self) -> dict[str, Any]:
        """The `search` of a study."""
        names = [f"test_{name}" for name in self.metrics]
        if self.method not in LEARNING:
            names = names[:1]
        elif len(names) > 2:
            raise Mistake(f"refit: {self.method} goes by one score, or two; name one of {', '.join(self.metrics)}")
        one = len(names) == 1
        return {
            "method": self.method, "trials": self.trials, "options": self.options,
            "metric": names[0] if one else names, "direction": "maximize" if one else ["maximize"] * len(names),
        }  # fmt: skip


def evaluated(problem: Problem, way: Way) -> tuple[list[Params], list[Fit]]:
    """All candidates and the fits of each to every fold, in the order of candidates, then folds."""
    from joblib import effective_n_jobs

    if way.engine not in ENGINES:
        raise Mistake(f"engine: found {way.engine!r}; {nearest(str(way.engine), ENGINES)}")
    jobs = effective_n_jobs(way.n_jobs)
    engine = way.engine if way.engine != "auto" else "serial" if jobs == 1 else "processes"
    name = _name(problem, way.out) if way.out else secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="tradewind-") as folder, held(problem, name, elsewhere=False):
        study = _study(problem, way, f"{folds.FIT}{name}", repeats=len(problem.splits))
        trained = problem
        if way.method not in LEARNING and (networks := networks_in(problem)):
            problem = replace(problem, chosen=chosen_of(study, networks))
            trained = replace(networks, chosen=problem.chosen)
            study = network_study(trained, way.search(), f"{folds.NETWORKS}{name}")
        _say(problem, study)
        with held(trained, name, elsewhere=engine == "processes"):
            options = {"engine": engine, "retry_failed": True, **({"workers": jobs} if engine == "processes" else {})}
            return _read(problem, _run(problem, study, way.out or Path(folder) / "run", options))


def _name(problem: Problem, out: Path) -> str:
    """What a problem is called in a run folder, of which it must be the only one."""
    parts = problem.digests()
    name = "_".join(parts.values())
    before = RunFolder(out).edition().get("study", {}).get("workload", "").rpartition(":")[2].split("_")[1:]
    changed = [part for part, old in zip(parts, before, strict=False) if parts[part] != old]
    if changed and len(before) == len(parts):
        raise StudyError(f"{out} holds another search: not the same {', '.join(changed)}; choose another `out`")
    return name


def _run(problem: Problem, study: Study, out: Path, options: dict[str, Any]) -> Results:
    watch = Onlooker(problem, aloud=problem.verbose > 1 and bool(problem.chosen or options["engine"] == "processes"))
    try:
        return run(study, out=out, watch=watch, **options)
    except Interrupted:
        if watch.record is not None:
            _raise_again(problem, watch.record)
        raise


class Onlooker(Quiet):
    """Ends a search at the first fit that GridSearchCV would not go on after; `aloud`: tells of each as that does."""

    def __init__(self, problem: Problem, aloud: bool) -> None:
        self.problem, self.aloud = problem, aloud
        self.record: Record | None = None

    def finished(self, worker: int | None, record: Record) -> None:
        """Look at what came out."""
        if self.aloud:
            print(_line(self.problem, record), flush=True)
        if self.record is None and _raises(self.problem, record):
            self.record = record
            raise KeyboardInterrupt


def _line(problem: Problem, record: Record) -> str:
    """What GridSearchCV prints of a fit."""
    params, scores = _params(problem, record), ""
    if problem.verbose > 2:
        found = {
            name.removeprefix("test_"): value for name, value in record["scores"].items() if name.startswith("test_")
        }
        scores = "".join(f", {name}={float('nan') if value is None else value:.3f}" for name, value in found.items())
    fit_s, score_s = _seconds(record)
    start = f"[CV {_fold(problem, record) + 1}/{len(problem.splits)}] END "
    about = ", ".join(f"{name}={params[name]}" for name in sorted(params))
    end = f"{about}{';' if about else ''}{scores} total time={fit_s + score_s:6.1f}s"
    return start + "." * (80 - len(start) - len(end)) + end


def _raises(problem: Problem, record: Record) -> bool:
    if record["state"] == "done":
        return False
    if problem.error_score == "raise":
        return True
    # an error beside the fit, such as a parameter that the estimator does not have; a worker that died leaves none
    return not problem.chosen and "traceback" in record["error"] and not _what(record).startswith(FAILED)


def _study(problem: Problem, way: Way, workload: str, repeats: int) -> Study:
    return Study(
        name=f"SearchCV of {type(problem.estimator).__name__}", workload=f"{folds.__name__}:{workload}",
        space=problem.candidates.space(), search=way.search(), repeats=repeats, seed=way.seed,
    )  # fmt: skip


def _say(problem: Problem, study: Study) -> None:
    if problem.verbose > 0:
        count, exact = Trials(study).count()
        n, about = len(problem.splits), "" if exact else "up to "
        print(f"Fitting {n} folds for each of {about}{count // n} candidates, totalling {about}{count} fits")


def _read(problem: Problem, results: Results) -> tuple[list[Params], list[Fit]]:
    order = {name: number for number, name in enumerate(problem.chosen)}

    def number(record: Record) -> int:
        return int(order[record["config"]["candidate"]] if order else record["trial"] // len(problem.splits))

    records = sorted(results.records(), key=number)
    names = list(getattr(problem.scorer, "_scorers", ())) or _names(records)
    candidates, fits = [], []
    for candidate, group in itertools.groupby(records, number):
        of_folds = list(group)
        if len(of_folds) != len(problem.splits):
            found = f"{len(of_folds)} of {len(problem.splits)} fits"
            raise RunError(f"{results.folder.path}: candidate {candidate} has {found}; call fit again to go on")
        candidates.append(_params(problem, of_folds[0]))
        for record in of_folds:
            if _raises(problem, record):
                _raise_again(problem, record)
            fits.append(_fit(problem, record, names))
    return candidates, fits


def _params(problem: Problem, record: Record) -> Params:
    config = record["config"]
    return problem.chosen[config["candidate"]] if problem.chosen else problem.candidates.params(config)


def _fold(problem: Problem, record: Record) -> int:
    return int(record["config"]["fold"] if problem.chosen else record["repeat"])


def _seconds(record: Record) -> tuple[float, float]:
    times = record["times"]
    return times.get("share_s", times.get("train_s", 0.0)), times.get("test_s", 0.0)


def _names(records: Sequence[Record]) -> list[str]:
    """The names that a scorer of the user's has given, in its order; none where it gives one number."""
    found = [name for record in records for name in record["scores"] if name.startswith("test_")]
    names = [name.removeprefix("test_") for name in dict.fromkeys(found)]
    return names if names != ["score"] else []


def _fit(problem: Problem, record: Record, names: Sequence[str]) -> Fit:
    done = record["state"] == "done"
    default = problem.error_score if not done and problem.error_score != "raise" else float("nan")

    def scores(part: str) -> Any:
        found = {name: record["scores"].get(f"{part}_{name}") for name in names or ["score"]}
        known = {name: default if value is None else value for name, value in found.items()}
        return known if names else known["score"]

    fit_s, score_s = _seconds(record)
    fit = {
        "fit_error": None if done else _what(record).removeprefix(FAILED), "test_scores": scores("test"),
        "fit_time": fit_s, "score_time": score_s,
    }  # fmt: skip
    return fit | ({"train_scores": scores("train")} if problem.return_train_score else {})


def _what(record: Record) -> str:
    return str(record["error"].get("what", "") or record["reason"])


def _raise_again(problem: Problem, record: Record) -> None:
    """An exception does not cross from a worker as it was: it is made anew here."""
    from sklearn.base import clone
    from sklearn.model_selection._validation import _fit_and_score

    params, fold = _params(problem, record), _fold(problem, record)
    train, test = problem.splits[fold]
    _fit_and_score(
        clone(problem.estimator), problem.X, problem.y, scorer=problem.scorer, train=train, test=test, verbose=0,
        parameters=params, fit_params=problem.fit_params, score_params=problem.score_params, error_score="raise",
    )  # fmt: skip
    raise RunError(f"{params} on fold {fold}: {_what(record)}")
