"""A problem of networks as a study of its own, in which candidates that stack can train together."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from tradewind.estimators import folds
from tradewind.estimators.candidates import Params
from tradewind.estimators.problem import Problem
from tradewind.pack import Value
from tradewind.schedule.trials import Trials
from tradewind.study import Study


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
    # whoever has a `fit` of his own means it to be called
    if getattr(type(network), "fit", None) is not there.Network.fit:
        return None
    if not all(stackable(name, prefix, spec) for name, spec in specs):
        return None
    return replace(problem, estimator=there.settled(network), before=before, prefix=prefix)


def _only_predicts(scorer: Any) -> bool:
    """Whether a scorer asks an estimator for nothing but predictions; a user's own function may look inside."""
    from sklearn.metrics._scorer import _BaseScorer, _PassthroughScorer

    found = getattr(scorer, "_scorers", {"score": scorer}).values()
    return all(isinstance(one, _BaseScorer | _PassthroughScorer) for one in found)


def chosen_of(study: Study, problem: Problem) -> dict[str, Params]:
    """The candidates of a search that does not learn, by what they are called."""
    trials = Trials(study)
    order = trials.order()
    found: dict[str, Params] = {}
    for index in dict.fromkeys(position // study.repeats for position in order.positions(0, order.size)):
        params = problem.candidates.params(trials[index * study.repeats].config)
        # not by number: with more values in the grid it would be another's
        name = base = ", ".join(f"{name}={code}" for name, code in _coded(problem, params).items())
        number = 1
        while name in found:
            number += 1
            name = f"{base} ({number})"
        found[name] = params
    return found


def _coded(problem: Problem, params: Params) -> dict[str, Value]:
    """A candidate as a config of networks has it."""
    codes, own = problem.candidates, problem.estimator.get_params()
    names = {name: name.removeprefix(problem.prefix) for name in codes.names}
    # of a name that only another candidate's grid has, this one has the estimator's value
    whole = {name: params.get(name, own.get(names[name])) for name in names}
    return {names[name]: codes.coded(name, [value])[0] for name, value in whole.items()}


def network_study(problem: Problem, search: dict[str, Any], workload: str) -> Study:
    """The study that trains the chosen candidates on every fold."""
    from tradewind.estimators.networks import settings_of

    space = [
        {"value": name, "space": {own: [code] for own, code in _coded(problem, params).items()}}
        for name, params in problem.chosen.items()
    ]
    searched = {name.removeprefix(problem.prefix) for name in problem.candidates.names}
    fixed = {name: value for name, value in settings_of(problem.estimator).items() if name not in searched}
    return Study(
        name=f"SearchCV of {type(problem.estimator).__name__}", workload=f"{folds.__name__}:{workload}",
        space={"fold": list(range(len(problem.splits))), "candidate": space}, fixed=fixed,  # full packs come first
        search={"metric": search["metric"], "direction": search["direction"]},
        data_seed=problem.estimator.data_seed,
    )  # fmt: skip
