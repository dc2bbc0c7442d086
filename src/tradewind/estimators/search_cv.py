"""SearchCV: GridSearchCV's manners, Tradewind's searches, engines and journal."""

# ruff: noqa: N803, N806 (X is scikit-learn's name)
from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import _fit_context, clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.model_selection._validation import _insert_error_scores, _warn_or_raise_about_fit_failures
from sklearn.utils import indexable
from sklearn.utils.validation import _check_method_params

from tradewind.estimators.candidates import Candidates
from tradewind.estimators.evaluation import Way, evaluated
from tradewind.estimators.problem import Problem


class SearchCV(BaseSearchCV):  # type: ignore[misc]
    """A search over the parameters of an estimator, each candidate cross-validated.

    What GridSearchCV takes means the same. Further: `method` (grid, random, sobol, tpe, gp, cmaes, nsga2) with
    `trials` candidates, its `options` and `seed`; `engine` (serial, processes; auto: by `n_jobs`); `out`, a run
    folder in which every fit is recorded, to be looked at, and to go on from when the same `fit` is called again.
    """

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 (scikit-learn's way)
        **BaseSearchCV._parameter_constraints,
        "param_grid": [dict, list, Mapping],
        "method": [str],
        **dict.fromkeys(["trials", "seed", "engine", "out", "options"], "no_validation"),
    }

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        method: str = "grid",
        *,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
        error_score: Any = np.nan,
        return_train_score: bool = False,
        trials: int | None = None,
        seed: int = 0,
        engine: str = "auto",
        out: str | Path | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            estimator=estimator, scoring=scoring, n_jobs=n_jobs, refit=refit, cv=cv, verbose=verbose,
            pre_dispatch=pre_dispatch, error_score=error_score, return_train_score=return_train_score,
        )  # fmt: skip
        self.param_grid, self.method, self.trials, self.seed = param_grid, method, trials, seed
        self.engine, self.out, self.options = engine, out, options

    @_fit_context(prefer_skip_nested_validation=False)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Fit all candidates to all folds, and the best one to everything."""
        scorer, refit_metric = self._get_scorers()
        X, y = indexable(X, y)
        routed = self._get_routed_params_for_fit(_check_method_params(X, params=params))
        splits = self._splits(X, y, routed.splitter.split)
        problem = Problem(
            clone(self.estimator), X, y, splits, scorer, Candidates(self.param_grid),
            fit_params=routed.estimator.fit, score_params=routed.scorer.score, error_score=self.error_score,
            return_train_score=self.return_train_score, verbose=self.verbose,
        )  # fmt: skip
        candidates, fits = evaluated(problem, self._way(scorer))
        _warn_or_raise_about_fit_failures(fits, self.error_score)
        if callable(self.scoring):
            _insert_error_scores(fits, self.error_score)
        results = self._format_results(candidates, self.n_splits_, fits)
        first = next(fit["test_scores"] for fit in fits)
        self.multimetric_ = isinstance(first, dict)
        if callable(self.scoring) and self.multimetric_:
            self._check_refit_for_multimetric(first)
            refit_metric = self.refit
        if self.refit or not self.multimetric_:
            self._choose(results, refit_metric)
        if self.refit:
            self._refit(X, y, routed.estimator.fit)
        self.scorer_ = getattr(scorer, "_scorers", scorer)
        self.cv_results_ = results
        return self

    def _splits(self, X: Any, y: Any, given: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        self.n_splits_ = cv.get_n_splits(X, y, **given)
        splits = list(cv.split(X, y, **given))
        if len(splits) != self.n_splits_:
            raise ValueError(
                f"cv.split and cv.get_n_splits return inconsistent results. Expected {self.n_splits_} splits, "
                f"got {len(splits)}"
            )
        if not splits:
            raise ValueError("No fits were performed. Was the CV iterator empty?")
        return splits

    def _way(self, scorer: Any) -> Way:
        several = callable(self.scoring) or hasattr(scorer, "_scorers")
        metrics = list(getattr(scorer, "_scorers", ["score"]))
        if several and isinstance(self.refit, str):
            metrics = [self.refit]
        return Way(
            self.method, self.trials, self.seed, dict(self.options or {}), metrics, self.engine, self.n_jobs,
            Path(self.out) if self.out is not None else None,
        )  # fmt: skip

    def _choose(self, results: dict[str, Any], metric: str) -> None:
        self.best_index_ = self._select_best_index(self.refit, metric, results)
        if not callable(self.refit):
            self.best_score_ = results[f"mean_test_{metric}"][self.best_index_]
        self.best_params_ = results["params"][self.best_index_]

    def _refit(self, X: Any, y: Any, fit_params: Mapping[str, Any]) -> None:
        # parameters may be estimators, which must not be fitted in the user's grid
        self.best_estimator_ = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
        began = time.time()
        if y is None:
            self.best_estimator_.fit(X, **fit_params)
        else:
            self.best_estimator_.fit(X, y, **fit_params)
        self.refit_time_ = time.time() - began
        if hasattr(self.best_estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.best_estimator_.feature_names_in_
