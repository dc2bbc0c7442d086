"""A problem as a study: run it, and read its records as scikit-learn's fits."""

from __future__ import annotations

import itertools
import secrets
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tradewind.errors import Mistake, RunError, nearest
from tradewind.estimators import folds
from tradewind.estimators.candidates import Params
from tradewind.estimators.problem import Problem, held
from tradewind.journal import Record
from tradewind.results import Results
from tradewind.run import run
from tradewind.schedule.trials import Trials
from tradewind.study import Study
from tradewind.study_search import LEARNING

ENGINES = ("auto", "serial", "processes")

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
    name = problem.digest() if way.out else secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="tradewind-") as folder, held(problem, name, elsewhere=False):
        study = _study(problem, way, f"{folds.FIT}{name}", repeats=len(problem.splits))
        trained = problem
        if way.method not in LEARNING and (networks := networks_in(problem)):
            problem = replace(problem, chosen=_chosen(study, problem))
            trained = replace(networks, chosen=problem.chosen)
            study = _network_study(trained, way, f"{folds.NETWORKS}{name}")
        _say(problem, study)
        with held(trained, name, elsewhere=engine == "processes"):
            workers = {"workers": jobs} if engine == "processes" else {}
            results = run(study, out=way.out or Path(folder) / "run", engine=engine, **workers)
        return _read(problem, results)


def _study(problem: Problem, way: Way, workload: str, repeats: int) -> Study:
    return Study(
        name=f"SearchCV of {type(problem.estimator).__name__}", workload=f"{folds.__name__}:{workload}",
        space=problem.candidates.space(), search=way.search(), repeats=repeats, seed=way.seed,
    )  # fmt: skip


def networks_in(problem: Problem) -> Problem | None:
    """The same problem of networks that can train together; None where they can't, or are none.

    They may be the last step of a pipeline: what comes before is then fitted once for each fold.
    """
    there = sys.modules.get("tradewind.estimators.network")  # torch need not be loaded to learn that there is none
    if there is None or problem.fit_params or not _only_predicts(problem.scorer):
        return None
    from sklearn.pipeline import Pipeline

    from tradewind.estimators.networks import stackable

    network, before, prefix = problem.estimator, None, ""
    if type(network) is Pipeline and len(network) > 1 and network.memory is None:
        (step, network), before = network.steps[-1], network[:-1]
        prefix = f"{step}__"
    specs = [item for grid in problem.candidates.grids for item in grid.items()]
    if not isinstance(network, there.Network) or not all(stackable(name, prefix, spec) for name, spec in specs):
        return None
    return replace(problem, estimator=there.settled(network), before=before, prefix=prefix)


def _only_predicts(scorer: Any) -> bool:
    """Whether a scorer asks an estimator for nothing but predictions; a user's own function may look inside."""
    from sklearn.metrics._scorer import _BaseScorer, _PassthroughScorer

    found = getattr(scorer, "_scorers", {"score": scorer}).values()
    return all(isinstance(one, _BaseScorer | _PassthroughScorer) for one in found)


def _chosen(study: Study, problem: Problem) -> list[Params]:
    """The candidates of a search that does not learn."""
    trials = Trials(study)
    order = trials.order()
    found = dict.fromkeys(position // study.repeats for position in order.positions(0, order.size))
    return [problem.candidates.params(trials[index * study.repeats].config) for index in found]


def _network_study(problem: Problem, way: Way, workload: str) -> Study:
    from tradewind.estimators.networks import settings_of

    codes, prefix, own = problem.candidates, problem.prefix, problem.estimator.get_params()
    names = {name: name.removeprefix(prefix) for name in codes.names}
    # of a name that only another candidate's grid has, this one has the estimator's value
    whole = [{name: params.get(name, own.get(names[name])) for name in names} for params in problem.chosen]
    space = [
        {"value": number, "space": {names[name]: codes.coded(name, [value]) for name, value in values.items()}}
        for number, values in enumerate(whole)
    ]
    fixed = {name: value for name, value in settings_of(problem.estimator).items() if name not in names.values()}
    return Study(
        name=f"SearchCV of {type(problem.estimator).__name__}", workload=f"{folds.__name__}:{workload}",
        space={"fold": list(range(len(problem.splits))), "candidate": space}, fixed=fixed,  # full packs come first
        search={"metric": way.search()["metric"], "direction": way.search()["direction"]},
        data_seed=problem.estimator.data_seed,
    )  # fmt: skip


def _say(problem: Problem, study: Study) -> None:
    if problem.verbose > 0:
        count, exact = Trials(study).count()
        n, about = len(problem.splits), "" if exact else "up to "
        print(f"Fitting {n} folds for each of {about}{count // n} candidates, totalling {about}{count} fits")


def _read(problem: Problem, results: Results) -> tuple[list[Params], list[Fit]]:
    def number(record: Record) -> int:
        return int(record["config"]["candidate"] if problem.chosen else record["trial"] // len(problem.splits))

    records = sorted(results.records(), key=number)
    names = list(getattr(problem.scorer, "_scorers", ())) or _names(records)
    candidates, fits = [], []
    for candidate, group in itertools.groupby(records, number):
        of_folds = list(group)
        if len(of_folds) != len(problem.splits):
            found = f"{len(of_folds)} of {len(problem.splits)} fits"
            raise RunError(f"{results.folder.path}: candidate {candidate} has {found}; call fit again to go on")
        config = of_folds[0]["config"]
        params = problem.chosen[config["candidate"]] if problem.chosen else problem.candidates.params(config)
        candidates.append(params)
        for fold, record in enumerate(of_folds):
            if record["state"] != "done" and problem.error_score == "raise":
                _raise_again(problem, params, fold, record)
            fits.append(_fit(problem, record, names))
    return candidates, fits


def _names(records: Sequence[Record]) -> list[str]:
    """The names that a scorer of the user's has given; none where it gives one number."""
    found = {
        name.removeprefix("test_") for record in records for name in record["scores"] if name.startswith("test_")
    }
    return sorted(found) if found - {"score"} else []


def _fit(problem: Problem, record: Record, names: Sequence[str]) -> Fit:
    done, times = record["state"] == "done", record["times"]
    default = problem.error_score if not done and problem.error_score != "raise" else float("nan")

    def scores(part: str) -> Any:
        found = {name: record["scores"].get(f"{part}_{name}") for name in names or ["score"]}
        known = {name: default if value is None else value for name, value in found.items()}
        return known if names else known["score"]

    fit = {
        "fit_error": None if done else _why(record), "test_scores": scores("test"),
        "fit_time": times.get("share_s", times.get("train_s", 0.0)), "score_time": times.get("test_s", 0.0),
    }  # fmt: skip
    return fit | ({"train_scores": scores("train")} if problem.return_train_score else {})


def _why(record: Record) -> str:
    what = record["error"].get("what", "") or record["reason"]
    return str(what).removeprefix("FitFailed: ")


def _raise_again(problem: Problem, params: Params, fold: int, record: Record) -> None:
    """An exception does not cross from a worker as it was: it is made anew here."""
    from sklearn.base import clone
    from sklearn.model_selection._validation import _fit_and_score

    train, test = problem.splits[fold]
    _fit_and_score(
        clone(problem.estimator), problem.X, problem.y, scorer=problem.scorer, train=train, test=test, verbose=0,
        parameters=params, fit_params=problem.fit_params, score_params=problem.score_params, error_score="raise",
    )  # fmt: skip
    raise RunError(f"{params} on fold {fold}: {_why(record)}")
