"""A problem whose estimator is a network as a workload: what stacks trains as a pack, fold by fold."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from tradewind.errors import Mistake, nearest
from tradewind.estimators.candidates import is_plain, plain
from tradewind.estimators.problem import Problem, named_scores
from tradewind.pack import Config, Value
from tradewind.study import Range
from tradewind.train.dropout import keyed
from tradewind.train.hyperparameters import TRAINING
from tradewind.workloads.contract import Data, Hyperparameter, Split

MODULE = "module__"
TOLD = ("inputs", "outputs")  # a module that has parameters of these names is told its sizes
OWN: dict[str, Hyperparameter] = {
    "random_state": Hyperparameter(0, int, low=0, help="of the weights and of dropout", stacks=True),
    "validation_fraction": Hyperparameter(0.0, float, low=0.0, high=1.0, help="of the samples, held back"),
    "fold": Hyperparameter(0, int, low=0, help="which part of the data is the test"),
    "candidate": Hyperparameter("", str, help="which of the candidates this is", stacks=True),
}
SETTINGS = {
    name: {**TRAINING, **OWN}[name]
    for name in (
        "epochs", "batch_size", "learning_rate", "schedule", "step_epochs", "step_factor", "optimizer", "momentum",
        "beta1", "beta2", "weight_decay", "precision", "device", "validation_fraction", "random_state",
    )
}  # fmt: skip


def make_network(module: Any, given: Mapping[str, Any], sizes: tuple[int, int], random_state: int) -> nn.Module:
    """A fresh network, its weights drawn from `random_state`."""
    if isinstance(module, nn.Module) or not callable(module):
        raise Mistake(
            f"module: found a {type(module).__name__}; allowed: a class or a function that makes an nn.Module"
        )
    parameters = inspect.signature(module).parameters
    several = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    for name in given:
        if name not in parameters and not several:
            raise Mistake(f"{MODULE}{name}: the module does not know it; {nearest(name, parameters)}")
    bound = {*given, *getattr(module, "keywords", ())}  # what a partial has bound is the user's word too
    told = {name: size for name, size in zip(TOLD, sizes, strict=True) if name in parameters and name not in bound}
    torch.manual_seed(random_state)
    network = module(**told, **given)
    if not isinstance(network, nn.Module):
        raise Mistake(f"module: found {module!r:.60}, which makes a {type(network).__name__}; allowed: an nn.Module")
    if any(map(nn.parameter.is_lazy, network.parameters())):
        raise Mistake(
            "module: has lazy layers; give them their sizes: a parameter `inputs` is told how many features"
        )
    return network


class Networks:
    """The networks of an estimator, fold by fold; a class of its own for each problem.

    A config names its candidate: the parameters that are no hyperparameters of training are looked up there.
    """

    problem: Problem
    defaults: Mapping[str, Hyperparameter] = OWN
    metric = "test_score"

    def __init__(self) -> None:
        self._fold: Fold | None = None

    def data(self, config: Config) -> Data:
        """The samples of a fold; with `validation_fraction` some of those that train are held back."""
        self._fold = Fold(self.problem, config["fold"], config["precision"])
        return self._fold.data(config["validation_fraction"], config["data_seed"])

    def model(self, config: Config) -> nn.Module:
        """A fresh network of a config, whose dropout draws from `random_state` too."""
        network = self.fresh(config)
        keyed(network, config["random_state"])
        return network

    def fresh(self, config: Config) -> nn.Module:
        """A network of a config as its module makes it."""
        assert self._fold is not None, "a model is asked for after its data"
        estimator = self.problem.estimator
        given = estimator.module_params()
        if self.problem.chosen:
            start = f"{self.problem.prefix}{MODULE}"
            mine = self.problem.chosen[config["candidate"]]
            given |= {name.removeprefix(start): value for name, value in mine.items() if name.startswith(start)}
        return make_network(estimator.module, given, self._fold.sizes, config["random_state"])

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, config: Config) -> torch.Tensor:
        """The estimator's."""
        assert self._fold is not None, "a loss is asked for after the data"
        if not isinstance(outputs, torch.Tensor):
            raise Mistake(f"module: found a {type(outputs).__name__} as its output; allowed: a tensor")
        size = self._fold.sizes[1]
        if outputs.numel() != len(targets) * size:
            each = f"{outputs.numel() / len(targets):g} outputs for a sample"
            raise Mistake(f"module: found {each}; allowed: {size}, one for each class or target in y")
        found: torch.Tensor = self.problem.estimator.loss(outputs, targets)
        return found

    def scores(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        """What the scorers say of a fold; nothing for what is held back, where the loss will do."""
        assert self._fold is not None, "scores are asked for after the data"
        return self._fold.scores(outputs, targets)


class Fold:
    """One fold of a problem: its arrays, and how outputs for them are scored."""

    def __init__(self, problem: Problem, number: int, precision: str) -> None:
        from sklearn.base import clone
        from sklearn.utils.metaestimators import _safe_split

        self._problem = problem
        train, test = problem.splits[number]
        self._estimator = clone(problem.estimator)
        self._train = _safe_split(self._estimator, problem.X, problem.y, train)
        self._test = _safe_split(self._estimator, problem.X, problem.y, test, train)
        if problem.before is not None:
            before = clone(problem.before)
            self._train = before.fit_transform(*self._train), self._train[1]
            self._test = before.transform(self._test[0]), self._test[1]
        self._rows = train, test
        self._dtype = np.float64 if precision == "fp64" else np.float32
        self._inputs, self._targets = self._estimator.prepared(*self._train)
        self.sizes: tuple[int, int] = self._inputs.shape[1], self._estimator.n_outputs_

    def data(self, validation_fraction: float, data_seed: int) -> Data:
        """The arrays as a workload has them; where training samples are scored too, they are part of the test."""
        inputs, targets = self._split(self._inputs), self._targets
        tests = [self._split(self._estimator.checked(self._test[0]))], [self._estimator.coded(self._test[1])]
        if self._problem.return_train_score:
            tests[0].append(inputs)
            tests[1].append(targets)
        self._tested = np.concatenate(tests[1])
        test = Split(np.concatenate(tests[0]), self._tested)
        if not validation_fraction:
            return Data(Split(inputs, targets), None, test)
        order = np.random.default_rng(data_seed).permutation(len(targets))
        count = max(1, round(validation_fraction * len(targets)))
        if count >= len(targets):
            raise Mistake(f"validation_fraction: found {validation_fraction}; it leaves nothing to train on")
        back, rest = np.sort(order[:count]), np.sort(order[count:])
        return Data(Split(inputs[rest], targets[rest]), Split(inputs[back], targets[back]), test)

    def scores(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        """What the scorers say; nothing unless these are the targets of the test."""
        if self._problem.scorer is None or not self._are_tested(targets):
            return {}
        found, values = {}, outputs.detach().cpu().numpy()
        count = len(self._test[1])
        found["test_scores"] = self._scored(self._test, self._rows[1], values[:count])
        if self._problem.return_train_score:
            found["train_scores"] = self._scored(self._train, self._rows[0], values[count:])
        return named_scores(found)

    def _scored(self, part: tuple[Any, Any], rows: Any, outputs: Any) -> Any:
        from sklearn.model_selection._validation import _score
        from sklearn.utils.validation import _check_method_params

        problem = self._problem
        params = _check_method_params(problem.X, params=dict(problem.score_params), indices=rows)
        return _score(self._estimator.answering(outputs), *part, problem.scorer, params, problem.error_score)

    def _are_tested(self, targets: torch.Tensor) -> bool:
        mine = torch.from_numpy(self._tested)
        return targets.shape == mine.shape and torch.equal(targets.cpu(), mine.to(targets.dtype))

    def _split(self, inputs: Any) -> Any:
        return np.require(inputs, self._dtype, ["C", "W"])  # torch warns of what it can't write to


def networks_of(problem: Problem) -> type[Networks]:
    """The workload class of a problem."""
    names = [name for name in problem.estimator.get_params() if name.startswith(MODULE)]
    names += [name.removeprefix(problem.prefix) for name in problem.candidates.names]
    own = {name: _of_module(name) for name in dict.fromkeys(names) if name.startswith(MODULE)}
    about = {"__doc__": Networks.__doc__, "problem": problem, "defaults": {**OWN, **own}}
    return type("Networks", (Networks,), about)


def settings_of(estimator: Any) -> dict[str, Value]:
    """The hyperparameters of training that an estimator is set to; a Mistake where one can't be."""
    given = estimator.get_params()
    known = {"module", "data_seed", *SETTINGS}
    for name in given:
        if name not in known and not name.startswith(MODULE):
            raise Mistake(f"{type(estimator).__name__}: does not know {name!r}; {nearest(name, known)}")
    found = {name: plain(value) for name, value in given.items() if name in SETTINGS}
    for name, value in {**found, "data_seed": given["data_seed"]}.items():
        if complaint := {**SETTINGS, "data_seed": OWN["random_state"]}[name].complaint(value):
            raise Mistake(f"{name}: {complaint}")
    return found


def stackable(name: str, prefix: str, spec: Any) -> bool:
    """Whether a parameter is one that networks train with, and not of the estimator around them."""
    own = name.removeprefix(prefix)
    if not name.startswith(prefix):
        return False
    return own.startswith(MODULE) or (own in SETTINGS and (isinstance(spec, Range) or all(map(is_plain, spec))))


def _of_module(name: str) -> Hyperparameter:
    # a rate of dropout may differ from network to network of a pack; whether all else is equal is found out there
    return Hyperparameter(None, object, refusal=_anything, stacks="dropout" in name)


def _anything(value: Value) -> str:
    return ""
