"""The workloads of a search: `fit_NAME` fits an estimator to a fold, `networks_NAME` trains networks on it.

A study names them as any other workload. They are made from the problem of that name when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tradewind.errors import TradewindError
from tradewind.estimators.problem import known, named_scores
from tradewind.pack import Config

FIT, NETWORKS = "fit_", "networks_"


def __getattr__(name: str) -> Any:
    if name.startswith(FIT):
        return fitting(name.removeprefix(FIT))
    if name.startswith(NETWORKS):
        from tradewind.estimators.networks import networks_of

        return networks_of(known(name.removeprefix(NETWORKS)))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class FitFailed(TradewindError):
    """An estimator could not be fitted; the text is the traceback."""


def fitting(name: str) -> Callable[[Config, Any], dict[str, float]]:
    """A problem as a function of a config: a trial is a candidate, its repeat the fold."""
    from sklearn.base import clone
    from sklearn.model_selection._validation import _fit_and_score

    known(name)

    def fit(config: Config, trial: Any) -> dict[str, float]:
        problem = known(name)  # not kept here: functions are remembered for good
        train, test = problem.splits[trial.repeat]
        found = _fit_and_score(
            clone(problem.estimator), problem.X, problem.y, scorer=problem.scorer, train=train, test=test,
            verbose=problem.verbose, parameters=problem.candidates.params(config),
            fit_params=problem.fit_params, score_params=problem.score_params,
            return_train_score=problem.return_train_score, return_times=True, error_score=problem.error_score,
            split_progress=(trial.repeat, len(problem.splits)),
        )  # fmt: skip
        if found["fit_error"] is not None:
            raise FitFailed(found["fit_error"])
        trial.times |= {"train_s": found["fit_time"], "test_s": found["score_time"]}
        return named_scores(found)

    return fit
