# ruff: noqa: RUF012 (as users write it)
"""The network of bench/everyday.py as somebody writes it for Tradewind, and the trivial function beside it."""

import numpy as np
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from tradewind import Data, Hyperparameter, Split

TRAIN, VALIDATION = 1000, 400


class Digits:
    """Handwritten digits of 8×8 pixels by one hidden layer."""

    metric = "validation_accuracy"
    defaults = {
        "width": Hyperparameter(32, int, low=1),
        "dropout": Hyperparameter(0.0, float, low=0.0, high=0.95),
    }

    def data(self, config):
        x, y = load_digits(return_X_y=True)
        x = (x - x.mean(0)) / (x.std(0) + 1e-6)
        order = np.random.default_rng(0).permutation(len(x))
        x, y = x[order].astype(np.float32), y[order]
        train, held = slice(TRAIN), slice(TRAIN, TRAIN + VALIDATION)
        return Data(Split(x[train], y[train]), Split(x[held], y[held]), Split(x[held], y[held]))

    def model(self, config):
        return nn.Sequential(
            nn.Linear(64, config["width"]), nn.ReLU(), nn.Dropout(config["dropout"]), nn.Linear(config["width"], 10)
        )

    def loss(self, outputs, targets, config):
        return functional.cross_entropy(outputs, targets)

    def scores(self, outputs, targets):
        return {"accuracy": (outputs.argmax(1) == targets).double().mean().item()}
