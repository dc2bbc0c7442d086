"""Any network as an estimator: NetworkClassifier and NetworkRegressor."""

# ruff: noqa: N803, N806 (X is scikit-learn's name)
from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from tradewind.errors import Mistake
from tradewind.estimators.candidates import plain
from tradewind.estimators.networks import MODULE, networks_of, settings_of
from tradewind.estimators.problem import Problem
from tradewind.folder import RunFolder
from tradewind.pack import Limits, Scores, Task, Trial
from tradewind.train.fitting import train_pack
from tradewind.train.hyperparameters import TRAINING
from tradewind.train.plain import EVALUATION_BATCH, choose_device, train

Array = np.ndarray[Any, Any]


class Network(BaseEstimator):  # type: ignore[misc]
    """What both have in common: parameters, training, outputs.

    `module` is a class or a function that makes an nn.Module from the parameters that are given as `module__NAME`.
    One that has parameters `inputs` and `outputs` is told how many features (channels of images) and outputs
    there are. `random_state` decides on weights and dropout, `data_seed` on the order of the samples and on which
    are held back for validation.
    """

    _ready: Array | None = None  # outputs that somebody else has computed

    def __init__(
        self,
        module: Any,
        *,
        epochs: int = 10,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        schedule: str = "constant",
        step_epochs: int = 10,
        step_factor: float = 0.1,
        optimizer: str = "adam",
        momentum: float = 0.0,
        beta1: float = 0.9,
        beta2: float = 0.999,
        weight_decay: float = 0.0,
        precision: str = "fp32",
        device: str = "auto",
        validation_fraction: float = 0.0,
        random_state: Any = 0,
        data_seed: int = 0,
        **module_params: Any,
    ) -> None:
        self.module = module
        self.epochs, self.batch_size = epochs, batch_size
        self.learning_rate, self.schedule = learning_rate, schedule
        self.step_epochs, self.step_factor = step_epochs, step_factor
        self.optimizer, self.momentum, self.beta1, self.beta2 = optimizer, momentum, beta1, beta2
        self.weight_decay = weight_decay
        self.precision, self.device = precision, device
        self.validation_fraction = validation_fraction
        self.random_state, self.data_seed = random_state, data_seed
        for name, value in module_params.items():  # fit refuses what is unknown: scikit-learn wants it no sooner
            setattr(self, name, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, those of the module among them."""
        own: dict[str, Any] = super().get_params(deep=deep)
        return own | {
            name: value
            for name, value in vars(self).items()
            if name.startswith(MODULE) or not (name.startswith("_") or name.endswith("_") or name in own)
        }

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of the module among them."""
        for name, value in params.items():
            if name.startswith(MODULE):
                setattr(self, name, value)
        super().set_params(**{name: value for name, value in params.items() if not name.startswith(MODULE)})
        return self

    def module_params(self) -> dict[str, Any]:
        """What the module is made with."""
        return {name.removeprefix(MODULE): value for name, value in vars(self).items() if name.startswith(MODULE)}

    def fit(self, X: Any, y: Any) -> Self:
        """Train a fresh network on all samples."""
        inputs, targets = self.prepared(X, y)
        rows = np.arange(len(inputs))
        problem = Problem(settled(self), inputs, self.uncoded(targets), [(rows, rows[:1])])
        with tempfile.TemporaryDirectory(prefix="tradewind-") as folder, torch.random.fork_rng():
            self.network_, self.history_ = _trained(problem, Path(folder) / "run")
        self.n_iter_ = len(self.history_)
        return self

    def prepared(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Inputs and targets to train with, checked; notes what can be learned from them."""
        raise NotImplementedError

    def coded(self, y: Any) -> Array:
        """Targets as the loss takes them."""
        raise NotImplementedError

    def uncoded(self, targets: Array) -> Array:
        """Targets as they were before they were coded."""
        return targets

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean loss of a batch."""
        raise NotImplementedError

    def checked(self, X: Any) -> Array:
        """Inputs to predict for, checked."""
        found: Array = validate_data(self, X, reset=False, allow_nd=True, dtype=[np.float64, np.float32])
        return found

    def answering(self, outputs: Array) -> Self:
        """An estimator of the same kind that has these outputs ready, whatever it is asked about."""
        found = copy.copy(self)
        found.network_, found._ready = nn.Identity(), outputs
        return found

    def outputs(self, X: Any) -> Array:
        """What the network gives for each sample."""
        check_is_fitted(self, "network_")
        inputs = self.checked(X)
        if self._ready is not None:
            return self._ready
        first = next(self.network_.parameters())
        network, pieces = self.network_.eval(), []
        with torch.no_grad():
            for start in range(0, len(inputs), EVALUATION_BATCH):
                piece = torch.tensor(inputs[start : start + EVALUATION_BATCH])
                pieces.append(network(piece.to(first.device, first.dtype)).cpu())
        found: Array = torch.cat(pieces).numpy()
        return found


class NetworkClassifier(ClassifierMixin, Network):  # type: ignore[misc]
    """A network that tells classes apart: an output for each, trained by cross-entropy."""

    def prepared(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Inputs, and for each sample which of the classes it is."""
        X, y = validate_data(self, X, y, allow_nd=True, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_, targets = np.unique(y, return_inverse=True)
        self.n_outputs_ = len(self.classes_)
        return X, targets.astype(np.int64)

    def coded(self, y: Any) -> Array:
        """Which of the classes each is; one that was not there to learn counts as the first in the loss."""
        values = column_or_1d(y)
        place = np.searchsorted(self.classes_, values).clip(0, len(self.classes_) - 1)
        return np.where(self.classes_[place] == values, place, 0).astype(np.int64)

    def uncoded(self, targets: Array) -> Array:
        """The classes themselves."""
        found: Array = self.classes_[targets]
        return found

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Cross-entropy."""
        return nn.functional.cross_entropy(outputs, targets)

    def predict_proba(self, X: Any) -> Array:
        """How likely each class is."""
        outputs = torch.from_numpy(self.outputs(X)).double()
        found: Array = torch.softmax(outputs, dim=1).numpy()
        return found

    def predict(self, X: Any) -> Array:
        """The likeliest class."""
        outputs = self.outputs(X)
        return self.uncoded(outputs.argmax(axis=1))


class NetworkRegressor(RegressorMixin, Network):  # type: ignore[misc]
    """A network that gives numbers: one output for each target, trained by the mean square error."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def prepared(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Inputs and targets, which are as many columns as there are outputs."""
        kinds = [np.float64, np.float32]
        X, y = validate_data(self, X, y, allow_nd=True, dtype=kinds, multi_output=True, y_numeric=True)
        self._one_target = y.ndim == 1
        self.n_outputs_ = 1 if y.ndim == 1 else y.shape[1]
        return X, self.coded(y)

    def coded(self, y: Any) -> Array:
        """Targets in columns."""
        values = np.asarray(y, dtype=np.float64 if self.precision == "fp64" else np.float32)
        return values.reshape(len(values), -1)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean square error."""
        return nn.functional.mse_loss(outputs.reshape(targets.shape), targets)

    def predict(self, X: Any) -> Array:
        """The numbers that the network gives."""
        found = self.outputs(X).astype(np.float64)
        return found.reshape(len(found)) if self._one_target else found.reshape(len(found), -1)


def settled(estimator: Network) -> Network:
    """The same, its `random_state` a number: itself, or one drawn from a generator or by chance."""
    found: Network = clone(estimator)
    found.random_state, found.data_seed = plain(found.random_state), plain(found.data_seed)
    if not isinstance(found.random_state, int):
        found.random_state = int(check_random_state(found.random_state).randint(2**31 - 1))
    return found


def _trained(problem: Problem, folder: Path) -> tuple[nn.Module, list[dict[str, float]]]:
    """A network as the trainer of a worker trains it, and its curve."""
    from safetensors.torch import load_file

    estimator = problem.estimator
    defaults = {name: known.default for name, known in TRAINING.items()}
    config = {**defaults, **settings_of(estimator), "fold": 0, "candidate": ""}
    config |= dict.fromkeys(name for name in estimator.get_params() if name.startswith(MODULE))
    trial = Trial(0, 0, "alone", config, 0, estimator.data_seed)
    workload, device = networks_of(problem)(), choose_device(config["device"])
    if device.type == "cuda" and not torch.cuda.is_available():
        raise Mistake("device: found 'cuda', and no GPU that torch can use; allowed: 'auto', 'cpu'")
    data = workload.data({**config, "data_seed": trial.data_seed})
    runs = RunFolder(folder)  # nobody else looks into it: only what training writes to is made
    runs.models.mkdir(parents=True)
    runs.checkpoints.mkdir()
    task = Task("", "", {}, "tune", Limits(), "", str(runs.path), torch.get_num_threads())
    if device.type == "cpu":
        outcome = train(trial, workload, data, task, _unheard)
    else:
        outcome = train_pack([trial], workload, data, task, _unheard)[trial.key]
    if outcome.state != "done":
        raise Mistake(f"{type(estimator).__name__}: {outcome.reason}; take a smaller learning_rate, or scale X")
    weights = load_file(runs.model(trial.key))
    network = workload.fresh(config)
    network.to(next((value.dtype for value in weights.values() if value.is_floating_point()), None))
    network.load_state_dict(weights)
    return network.to(device).eval(), outcome.curve


def _unheard(key: str, epoch: int, scores: Scores) -> None:
    """Nobody waits for news of a single network."""
