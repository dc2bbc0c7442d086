"""SearchCV beside GridSearchCV, and networks as estimators."""

# ruff: noqa: N803 (X is scikit-learn's name)
from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import loguniform, randint, truncnorm, uniform
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import tradewind
from tradewind import NetworkClassifier, NetworkRegressor, SearchCV
from tradewind.errors import Mistake, StudyError
from tradewind.estimators import problem as problems
from tradewind.train import profile

X, Y = load_iris(return_X_y=True)


def net(inputs: int, outputs: int, hidden: int = 8, dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.Tanh(), nn.Dropout(dropout), nn.Linear(hidden, outputs)
    )  # fmt: skip


class Line(nn.Linear):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)


class Pair(Line):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x), x


WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")


@pytest.fixture(autouse=True)
def _one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.machine.cores", lambda: 1)
    torch.set_num_threads(1)


def assert_same(ours: Any, theirs: Any, close: float = 0.0) -> None:
    """Two searches have found the same, whatever it took them."""
    assert list(ours.cv_results_) == list(theirs.cv_results_)
    for name, column in theirs.cv_results_.items():
        if name == "params":
            assert ours.cv_results_[name] == column
        elif name.startswith("param_"):
            assert ours.cv_results_[name].tolist() == column.tolist()
            assert ours.cv_results_[name].dtype == column.dtype
        elif not name.endswith("_time"):
            np.testing.assert_allclose(ours.cv_results_[name], column, rtol=0, atol=close, err_msg=name)
    for name in ("best_params_", "best_index_", "n_splits_", "multimetric_", "n_features_in_"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.best_score_ == pytest.approx(theirs.best_score_, abs=close)


@pytest.mark.parametrize(
    ("grid", "options"),
    [
        ({"kernel": ["rbf", "linear"], "C": np.logspace(-1, 1, 3)}, {}),
        ([{"kernel": ["rbf"], "gamma": [0.01, 0.1]}, {"kernel": ["linear"], "C": [1, 10]}, {}], {"cv": 3}),
        ({"C": (0.1, 1, 1.0, True), "gamma": ["auto", 0.1]}, {"return_train_score": True, "cv": 2}),
        ({"C": [1.0], "class_weight": [None, {0: 2.0}, "balanced"]}, {"scoring": "balanced_accuracy", "cv": 2}),
        ({"C": [0.01, 1.0]}, {"scoring": ["accuracy", "f1_macro"], "refit": "f1_macro", "cv": 2}),
        ({"C": [0.01, 1.0]}, {"scoring": lambda e, x, y: {"b": e.score(x, y), "a": 1.0}, "refit": "b", "cv": 2}),
    ],
)
def test_only_the_name_of_the_class_differs_from_grid_search(grid: Any, options: dict[str, Any]) -> None:
    ours, theirs = SearchCV(SVC(), grid, **options).fit(X, Y), GridSearchCV(SVC(), grid, **options).fit(X, Y)
    assert_same(ours, theirs)
    assert (ours.predict(X) == theirs.predict(X)).all()
    assert ours.score(X, Y) == theirs.score(X, Y)
    assert (ours.classes_ == theirs.classes_).all()
    assert ours.refit_time_ > 0


def test_of_three_scores_none_need_be_the_one_that_counts() -> None:
    options: dict[str, Any] = {"scoring": ["accuracy", "f1_macro", "f1_micro"], "cv": 2, "refit": False}
    ours, theirs = SearchCV(SVC(), {"C": [0.01, 1.0]}, **options), GridSearchCV(SVC(), {"C": [0.01, 1.0]}, **options)
    ours.fit(X, Y), theirs.fit(X, Y)
    assert list(ours.cv_results_) == list(theirs.cv_results_)
    for name in ("mean_test_accuracy", "std_test_f1_macro", "rank_test_f1_micro"):
        assert ours.cv_results_[name].tolist() == theirs.cv_results_[name].tolist()
    assert not hasattr(ours, "best_index_")
    with pytest.raises(Mistake, match="tpe goes by one score, or two; name one of accuracy, f1_macro, f1_micro"):
        ours.set_params(method="tpe", trials=2).fit(X, Y)


def test_workers_fit_what_this_process_fits_and_nothing_is_left_behind(capsys: pytest.CaptureFixture[str]) -> None:
    tree, grid = DecisionTreeClassifier(random_state=0), {"max_depth": [1, 2], "criterion": ["gini", "entropy"]}
    big = np.tile(X, (300, 1)) + np.random.default_rng(0).normal(size=(300 * len(X), 4))
    assert big.nbytes > problems.MAPPED_BYTES
    ours = SearchCV(tree, grid, cv=2, n_jobs=2, verbose=3).fit(big, np.tile(Y, 300))
    heard = capsys.readouterr().out
    assert_same(ours, GridSearchCV(tree, grid, cv=2, verbose=3).fit(big, np.tile(Y, 300)))
    told, theirs = (
        sorted(re.sub("total time= .*", "", line) for line in text.splitlines())
        for text in (heard, capsys.readouterr().out)
    )
    assert told == theirs
    assert len(told) == 1 + 8
    folder = Path(os.environ[problems.FOLDER])
    assert folder.stat().st_mode & 0o077 == 0
    assert not list(folder.iterdir())


def test_a_scripts_own_estimator_reaches_the_workers(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text("""
import numpy as np
from sklearn.linear_model import Ridge
from tradewind import SearchCV

class Mine(Ridge):
    def predict(self, X):
        return np.round(super().predict(X))

if __name__ == "__main__":
    X = np.arange(40.0).reshape(20, 2)
    found = SearchCV(Mine(), {"alpha": [1e-6, 1e9]}, engine="processes", cv=2).fit(X, X[:, 0])
    print(found.best_params_, found.best_score_)
""")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout == "{'alpha': 1e-06} 1.0\n", done.stderr
    assert not (tmp_path / "runs").exists()


def test_what_others_could_have_written_is_not_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(problems.FOLDER, str(tmp_path))
    (tmp_path / "abc").write_bytes(b"cos\nabort\n(tR.")
    (tmp_path / "abc").chmod(0o644)
    with pytest.raises(Mistake, match="others than this user"):
        problems.known("abc")
    with pytest.raises(Mistake, match="call its fit again with the same `out`"):
        problems.known("def")


def test_values_that_are_objects_come_back_as_they_were() -> None:
    scalers = [StandardScaler(), MinMaxScaler(), "passthrough", MinMaxScaler()]
    search = SearchCV(
        Pipeline([("scale", None), ("fit", LogisticRegression())]),
        {"scale": scalers, "fit__C": [0.1, math.inf], "fit__tol": [np.float32(0.01)]},
        cv=2,
    ).fit(X, Y)
    found = [params["scale"] for params in search.cv_results_["params"]]
    assert [scalers.index(one) for one in found] == [0, 1, 2, 3] * 2
    assert all(any(one is scaler for scaler in scalers) for one in found)
    assert type(search.best_params_["fit__tol"]) is np.float32
    assert search.cv_results_["param_fit__C"].tolist() == [0.1] * 4 + [math.inf] * 4
    assert not hasattr(scalers[0], "mean_")


def test_arrays_may_be_values() -> None:
    grid = {"priors": [None, np.array([0.2, 0.3, 0.5]), np.array([0.6, 0.2, 0.2])]}
    ours, theirs = SearchCV(GaussianNB(), grid, cv=2).fit(X, Y), GridSearchCV(GaussianNB(), grid, cv=2).fit(X, Y)
    assert ours.cv_results_["mean_test_score"].tolist() == theirs.cv_results_["mean_test_score"].tolist()
    found = [params["priors"] for params in ours.cv_results_["params"]]
    assert all(one is value for one, value in zip(found, grid["priors"], strict=True))


class Counting(DecisionTreeClassifier):  # type: ignore[misc]
    """Counts its fits, and is interrupted in one of them."""

    fits: list[int] = []  # noqa: RUF012 (of the class)
    interrupted_at = 0

    def fit(self, X: Any, y: Any) -> Counting:
        Counting.fits.append(self.max_depth)
        if len(Counting.fits) == Counting.interrupted_at:
            raise KeyboardInterrupt
        found: Counting = super().fit(X, y)
        return found


def test_an_interrupted_search_goes_on_fold_by_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counting, "fits", [])
    monkeypatch.setattr(Counting, "interrupted_at", 6)
    search = SearchCV(Counting(random_state=0), {"max_depth": [1, 2, 3]}, cv=3, out=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        search.fit(X, Y)
    assert Counting.fits == [1, 1, 1, 2, 2, 2]
    search.fit(X, Y)
    assert Counting.fits[6:-1] == [2, 3, 3, 3]  # the last one is the refit
    again = clone(search).fit(X, Y)
    assert len(Counting.fits) == 12
    assert_same(again, GridSearchCV(Counting(random_state=0), {"max_depth": [1, 2, 3]}, cv=3).fit(X, Y))
    results = tradewind.Results.load(tmp_path / "run")
    assert (
        results.column("test_score").reshape(3, 3).mean(1).tolist() == again.cv_results_["mean_test_score"].tolist()
    )
    assert results.items("max_depth") == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    more = clone(search).set_params(param_grid={"max_depth": [1, 2, 3, 4]})
    count = len(Counting.fits)
    more.fit(X, Y)
    assert len(Counting.fits) == count + 3 + 1
    with pytest.raises(StudyError, match="holds another search: not the same data, folds; choose another `out`"):
        clone(search).fit(X[::2], Y[::2])
    with pytest.raises(StudyError, match="not the same scoring"):
        clone(search).set_params(return_train_score=True).fit(X, Y)  # no training score was recorded


def test_an_interrupt_ends_what_is_around_a_search_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counting, "fits", [])
    monkeypatch.setattr(Counting, "interrupted_at", 2)
    with pytest.raises(KeyboardInterrupt):
        cross_val_score(SearchCV(Counting(random_state=0), {"max_depth": [1, 2]}, cv=2), X, Y, cv=2)
    assert len(Counting.fits) == 2


def test_a_search_with_a_lambda_goes_on_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counting, "fits", [])
    for _ in range(2):
        search = SearchCV(
            Counting(random_state=0),
            {"max_depth": [1]},
            cv=2,
            scoring=lambda e, x, y: e.score(x, y),
            out=tmp_path / "run",
        )
        search.fit(X, Y)
    assert len(Counting.fits) == 2 + 1 + 1


class Moody(DecisionTreeClassifier):  # type: ignore[misc]
    """Fails to fit a stump while it is in a mood."""

    fits = 0
    mood = True

    def fit(self, X: Any, y: Any) -> Moody:
        Moody.fits += 1
        if Moody.mood and self.max_depth == 1:
            raise KeyError("in a mood")
        found: Moody = super().fit(X, y)
        return found


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")  # as GridSearchCV says
def test_what_failed_is_fitted_again_by_the_next_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Moody, "mood", True)
    search = SearchCV(Moody(random_state=0), {"max_depth": [1, 2]}, cv=2, out=tmp_path / "run")
    with pytest.warns(FitFailedWarning, match="in a mood"):
        search.fit(X, Y)
    monkeypatch.setattr(Moody, "mood", False)
    monkeypatch.setattr(Moody, "fits", 0)
    search.fit(X, Y)
    assert Moody.fits == 2 + 1
    assert_same(search, GridSearchCV(Moody(random_state=0), {"max_depth": [1, 2]}, cv=2).fit(X, Y))


def test_an_error_that_is_to_be_raised_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Moody, "mood", True)
    monkeypatch.setattr(Moody, "fits", 0)
    with pytest.raises(KeyError, match="in a mood"):
        SearchCV(Moody(), {"max_depth": list(range(1, 40))}, cv=2, error_score="raise").fit(X, Y)
    assert Moody.fits < 10
    with pytest.raises(ValueError, match="Invalid parameter 'depth' for estimator Moody"):
        SearchCV(Moody(), {"depth": [1, 2]}, cv=2).fit(X, Y)
    with pytest.raises(ValueError, match="scoring must return a number, got hm"):
        SearchCV(Moody(), {"max_depth": [2]}, scoring=lambda e, x, y: "hm", cv=2).fit(X, Y)


def test_a_candidate_that_fails_gets_the_error_score() -> None:
    grid, options = {"C": [1.0, -1.0]}, {"cv": 2, "error_score": -7.0}
    with pytest.warns(FitFailedWarning, match="2 fits failed out of a total of 4(.|\n)*InvalidParameterError"):
        ours = SearchCV(SVC(), grid, **options).fit(X, Y)
    with pytest.warns(FitFailedWarning):
        assert_same(ours, GridSearchCV(SVC(), grid, **options).fit(X, Y))
    assert ours.cv_results_["mean_test_score"][1] == -7.0
    with pytest.raises(ValueError, match="The 'C' parameter of SVC must be"):
        SearchCV(SVC(), grid, cv=2, error_score="raise").fit(X, Y)
    with pytest.raises(ValueError, match="All the 2 fits failed"):
        SearchCV(SVC(), {"C": [-1.0]}, cv=2).fit(X, Y)


@pytest.mark.parametrize("method", ["random", "sobol", "tpe", "cmaes"])
def test_other_methods_draw_from_ranges_and_distributions(method: str) -> None:
    space = {
        "min_samples_split": randint(2, 9), "ccp_alpha": loguniform(1e-4, 1e-1),
        "min_impurity_decrease": {"low": 0.0, "high": 0.2}, "criterion": ["gini", "entropy"],
    }  # fmt: skip
    search = SearchCV(DecisionTreeClassifier(random_state=0), space, method, trials=5, cv=2, seed=3).fit(X, Y)
    drawn = search.cv_results_["params"]
    assert len(drawn) == 5
    assert all(type(one["min_samples_split"]) is int and 2 <= one["min_samples_split"] <= 8 for one in drawn)
    assert all(1e-4 <= one["ccp_alpha"] <= 1e-1 and 0 <= one["min_impurity_decrease"] <= 0.2 for one in drawn)
    assert len({one["ccp_alpha"] for one in drawn}) == 5
    assert clone(search).fit(X, Y).cv_results_["params"] == drawn
    assert clone(search).set_params(seed=4).fit(X, Y).cv_results_["params"] != drawn
    tree = DecisionTreeClassifier(random_state=0, **drawn[2])
    assert search.cv_results_["mean_test_score"][2] == cross_val_score(tree, X, Y, cv=2).mean()


def test_a_distribution_between_whole_numbers_gives_fractions() -> None:
    space = {"C": loguniform(1, 1000), "gamma": uniform(0, 1)}
    drawn = SearchCV(SVC(), space, "random", trials=4, cv=2).fit(X, Y).cv_results_["params"]
    assert not any(float(one["C"]).is_integer() or float(one["gamma"]).is_integer() for one in drawn)


@pytest.mark.filterwarnings("ignore:(Scoring failed|One or more of the test scores)")  # as GridSearchCV says
def test_a_search_that_learns_goes_by_the_score_of_refit_and_past_scores_that_fail() -> None:
    def scores(estimator: Any, x: Any, y: Any) -> dict[str, float]:
        return {"a": estimator.C, "b": -estimator.C}

    def fails(estimator: Any, x: Any, y: Any) -> float:
        if estimator.C < 2:
            raise ValueError("no score")
        return float(estimator.C)

    space = {"C": {"low": 0.5, "high": 8.0}}
    for scoring, refit in ((scores, "a"), (scores, "b"), (fails, True)):
        search = SearchCV(SVC(), space, "tpe", trials=4, scoring=scoring, refit=refit, cv=2).fit(X, Y)
        tried = [params["C"] for params in search.cv_results_["params"]]
        assert search.best_params_["C"] == (min(tried) if refit == "b" else max(tried))
    assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == [one < 2 for one in tried]
    assert 0 < sum(one < 2 for one in tried) < 4


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"method": "gird"}, StudyError, "did you mean 'grid'"),
        ({"method": "tpe"}, StudyError, "trials"),
        ({"engine": "process"}, Mistake, "did you mean 'processes'"),
        ({"param_grid": {"C": {"low": 1.0, "high": 2.0}}}, StudyError, "a grid needs"),
        ({"param_grid": {"C": truncnorm(0, 1)}, "method": "random"}, StudyError, "found the distribution truncnorm"),
        ({"param_grid": {"C": "rbf"}}, TypeError, "needs to be a list"),
        ({"param_grid": {"C": []}}, ValueError, "non-empty"),
        ({"param_grid": {"C": np.array(3.0)}}, TypeError, "needs to be a list"),
        ({"param_grid": {"C": {"lo": 1, "high": 2}}}, StudyError, "'C': a range has no 'lo'; did you mean 'low'"),
        ({"param_grid": {"C": {"low": 1}}}, StudyError, "'C': high: is missing"),
        ({"param_grid": {"class_weight": {0: 1.0}}}, StudyError, "a dict that is a value goes in a list"),
        ({"param_grid": [3]}, TypeError, "a list of dicts"),
    ],
)
def test_mistakes_are_told_before_anything_is_fitted(options: dict[str, Any], kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        SearchCV(SVC(), **{"param_grid": {"C": [1.0]}, **options}).fit(X, Y)


def test_a_network_takes_the_steps_that_gradient_descent_takes() -> None:
    x, y = load_diabetes(return_X_y=True)
    y = y[:, None] / 100
    found = NetworkRegressor(
        Line, epochs=4, batch_size=1000, learning_rate=0.3, optimizer="sgd", precision="fp64", random_state=7
    ).fit(x, y[:, 0])
    torch.manual_seed(7)
    start = nn.Linear(10, 1)
    w, b = start.weight.detach().double().numpy().T, start.bias.detach().double().numpy()
    for _ in range(4):
        left = x @ w + b - y
        w, b = w - 0.3 * 2 * x.T @ left / len(x), b - 0.3 * 2 * left.mean(0)
    np.testing.assert_allclose(found.predict(x), (x @ w + b)[:, 0], rtol=1e-10)
    assert [row["epoch"] for row in found.history_] == [1, 2, 3, 4]
    assert found.history_[3]["train_loss"] < found.history_[0]["train_loss"]


CLASSIFIER = NetworkClassifier(net, epochs=6, batch_size=32, learning_rate=0.03, precision="fp64", device="cpu")


def test_a_network_is_an_estimator_like_others() -> None:
    network = clone(CLASSIFIER).set_params(module__hidden=12, epochs=15)
    assert network.get_params()["module__hidden"] == 12
    pipeline = make_pipeline(StandardScaler(), network)
    names = np.array(["a", "b", "c"])[Y]
    assert cross_val_score(pipeline, X, names, cv=3).min() > 0.85
    assert not hasattr(network, "network_")
    pipeline.fit(X, names)
    chances = pipeline.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert (pipeline.classes_[chances.argmax(axis=1)] == pipeline.predict(X)).all()
    assert network.network_[0].weight.shape == (12, 4)
    assert type(network.network_[2]) is nn.Dropout
    state = torch.random.get_rng_state()
    assert (clone(pipeline).fit(X, names).predict_proba(X) == chances).all()
    assert torch.equal(torch.random.get_rng_state(), state)
    other = clone(pipeline).set_params(networkclassifier__random_state=1).fit(X, names)
    assert (other.predict_proba(X) != chances).any()


def test_samples_held_back_are_validated_on_and_not_trained_on() -> None:
    some = clone(CLASSIFIER).set_params(validation_fraction=0.2).fit(X, Y)
    assert {"train_loss", "validation_loss"} <= some.history_[-1].keys()
    back = np.sort(np.random.default_rng(0).permutation(len(X))[:30])
    proba = some.predict_proba(X[back])
    loss = -np.log(proba[np.arange(30), Y[back]]).mean()
    assert some.history_[-1]["validation_loss"] == pytest.approx(loss, rel=1e-9)
    assert "validation_loss" not in clone(CLASSIFIER).fit(X, Y).history_[-1]


@pytest.mark.parametrize("options", [{}, {"return_train_score": True, "scoring": ["neg_log_loss", "accuracy"]}])
def test_candidates_that_stack_train_as_packs_and_give_what_they_give_alone(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "PAYS", math.inf)
    grid = {"learning_rate": [0.01, 0.03], "weight_decay": [0, 0.1], "module__dropout": [0.0, 0.3]}
    refit = {"refit": "neg_log_loss"} if options else {}
    ours = SearchCV(CLASSIFIER, grid, cv=2, out=tmp_path / "run", **options, **refit).fit(X, Y)
    theirs = GridSearchCV(CLASSIFIER, grid, cv=2, **options, **refit).fit(X, Y)
    assert_same(ours, theirs, close=1e-10)
    results = tradewind.Results.load(tmp_path / "run")
    assert len(results) == 16
    assert set(results.column("packed_with")) == {7}
    assert set(results.items("fold")) == {0, 1}


def test_more_candidates_of_networks_train_those_alone(tmp_path: Path) -> None:
    grid = {"learning_rate": [0.01, 0.03, 0.1], "epochs": [1]}
    few = SearchCV(CLASSIFIER, {**grid, "learning_rate": [0.01, 0.1]}, cv=2, out=tmp_path / "run").fit(X, Y)
    more = clone(few).set_params(param_grid=grid).fit(X, Y)
    assert_same(more, GridSearchCV(CLASSIFIER, grid, cv=2).fit(X, Y), close=1e-10)
    results = tradewind.Results.load(tmp_path / "run")
    assert results.items("candidate").count("epochs=1, learning_rate=0.1") == 2
    assert sorted(Counter(record["edition"] for record in results.records()).values()) == [2, 4]


class Halved(NetworkClassifier):
    """Trains on every other sample."""

    def fit(self, X: Any, y: Any) -> Halved:
        found: Halved = super().fit(X[::2], y[::2])
        return found


def test_a_fit_of_the_users_own_is_called() -> None:
    network, grid = Halved(**CLASSIFIER.get_params()), {"learning_rate": [0.01, 0.03]}
    assert_same(SearchCV(network, grid, cv=2).fit(X, Y), GridSearchCV(network, grid, cv=2).fit(X, Y))


def test_seeds_may_be_numpys_numbers() -> None:
    seeds = {"random_state": np.int64(2), "data_seed": np.int64(3), "epochs": 1}
    search = SearchCV(clone(CLASSIFIER).set_params(**seeds), {"learning_rate": [0.1]}, cv=2).fit(X, Y)
    plain = NetworkClassifier(**{**CLASSIFIER.get_params(), **{name: int(seeds[name]) for name in seeds}})
    assert (search.predict_proba(X) == plain.set_params(learning_rate=0.1).fit(X, Y).predict_proba(X)).all()


def test_networks_of_several_kinds_and_a_search_that_learns_do_what_others_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profile, "PAYS", math.inf)
    x, y = load_diabetes(return_X_y=True)
    y = y / 100
    regressor = NetworkRegressor(net, epochs=3, learning_rate=0.01, precision="fp64", random_state=np.int64(3))
    by_module = [{"module": [Line], "learning_rate": [0.1, 1]}]
    by_size = [
        {"learning_rate": [1], "random_state": [0, 3]},
        {"module__hidden": [2, 4], "epochs": np.arange(1, 3)},
    ]
    for grids in (by_module, by_size):
        ours, theirs = SearchCV(regressor, grids, cv=2).fit(x, y), GridSearchCV(regressor, grids, cv=2).fit(x, y)
        assert_same(ours, theirs, close=1e-10)
    space = {"learning_rate": {"low": 1e-3, "high": 0.1, "log": True}}
    for method in ("random", "tpe"):
        search = SearchCV(regressor, space, method, trials=2, cv=2).fit(x, y)
        rates = [params["learning_rate"] for params in search.cv_results_["params"]]
        assert_same(search, GridSearchCV(regressor, {"learning_rate": rates}, cv=2).fit(x, y), close=1e-10)


def test_networks_at_the_end_of_a_pipeline_train_as_packs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "PAYS", math.inf)
    pipeline = make_pipeline(StandardScaler(), CLASSIFIER)
    name = "networkclassifier__"
    grid = [{f"{name}learning_rate": [0.01, 0.1], f"{name}module__hidden": [4, 5]}, {f"{name}epochs": [2]}]
    ours = SearchCV(pipeline, grid, cv=2, scoring="neg_log_loss", out=tmp_path / "run").fit(X, Y)
    assert_same(ours, GridSearchCV(pipeline, grid, cv=2, scoring="neg_log_loss").fit(X, Y), close=1e-10)
    assert sorted(tradewind.Results.load(tmp_path / "run").column("packed_with")) == [0, 0] + [1] * 8
    scaled = {"standardscaler__with_mean": [True, False], f"{name}epochs": [1]}  # and so the networks' data differ
    assert_same(SearchCV(pipeline, scaled, cv=2).fit(X, Y), GridSearchCV(pipeline, scaled, cv=2).fit(X, Y))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"learning_rate": -1.0}, "learning_rate: found -1.0; allowed: numbers from 0"),
        ({"module__hiden": 3}, "module__hiden: the module does not know it; did you mean 'hidden'"),
        ({"learing_rate": 0.1}, "does not know 'learing_rate'; did you mean 'learning_rate'"),
        ({"module": lambda: 3}, "makes a int; allowed: an nn.Module"),
        ({"module": Line(4, 3)}, "found a Line; allowed: a class or a function that makes an nn.Module"),
        ({"module": "net"}, "module: found a str; allowed: a class or a function"),
        ({"module": partial(net, outputs=5)}, "module: found 5 outputs for a sample; allowed: 3, one for each class"),
        ({"module": nn.LazyLinear, "module__out_features": 3}, "module: has lazy layers; give them their sizes"),
        ({"module": Pair}, "found a network that returns a tuple of 2; allowed: one tensor"),
        pytest.param({"device": "cuda"}, "no GPU that torch can use; allowed: 'auto', 'cpu'", marks=WITHOUT_GPU),
        ({"data_seed": None}, "data_seed: found None, a NoneType; allowed: whole numbers"),
        ({"learning_rate": 1e37, "precision": "fp32"}, "not finite in epoch"),
    ],
)
def test_a_network_says_what_is_wrong_with_it(change: dict[str, Any], words: str) -> None:
    params = {**CLASSIFIER.get_params(), **change}
    with pytest.raises(Mistake, match=words):
        NetworkClassifier(**params).fit(X, Y)


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")  # as GridSearchCV says
def test_a_network_that_diverges_costs_its_candidate_alone() -> None:
    grid = {"learning_rate": [0.01, 1e37]}
    with pytest.warns(FitFailedWarning, match="not finite in epoch"):
        search = SearchCV(clone(CLASSIFIER).set_params(precision="fp32"), grid, cv=2).fit(X, Y)
    assert search.best_params_ == {"learning_rate": 0.01}
    assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == [False, True]


def test_an_unfitted_search_says_so() -> None:
    with pytest.raises(NotFittedError):
        SearchCV(Ridge(), {"alpha": [1.0]}).predict(X)
    assert not hasattr(SearchCV(Ridge(), {"alpha": [1.0]}), "predict_proba")


TINY = {"epochs": 20, "batch_size": 16, "learning_rate": 0.1, "device": "cpu"}
SEARCH = SearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")  # as GridSearchCV
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@parametrize_with_checks([NetworkClassifier(Line, **TINY), NetworkRegressor(Line, **TINY), SEARCH])
def test_all_that_scikit_learn_asks_of_an_estimator_holds(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_a_candidate_is_known_by_its_content_however_long_its_name_is(tmp_path: Path) -> None:
    weak, strong = (make_pipeline(StandardScaler(), PCA(3), LogisticRegression(C=C)) for C in (1e-5, 10.0))
    chain = Pipeline([("model", weak)])
    for grid in ([weak], [weak, strong]):
        ours = SearchCV(chain, {"model": grid}, cv=3, out=tmp_path / "run").fit(X, Y)
        theirs = GridSearchCV(chain, {"model": grid}, cv=3).fit(X, Y)
        assert ours.cv_results_["mean_test_score"] == pytest.approx(theirs.cv_results_["mean_test_score"])
    again = SearchCV(chain, {"model": [clone(weak), clone(strong)]}, cv=3, out=tmp_path / "run").fit(X, Y)
    assert again.best_score_ == pytest.approx(0.9733, abs=1e-4)
    assert len(tradewind.Results.load(tmp_path / "run")) == 6  # known again
