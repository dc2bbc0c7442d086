"""A zoo of networks: what users write, one of each kind. A workload that tests copy beside a study."""

import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from tradewind import Data, Hyperparameter, Split


class Front(nn.Module):
    """Convolutions that kernels of our own do, with a ReLU and a pool for all of them, and what follows."""

    def __init__(self):
        super().__init__()
        self.low, self.high = nn.Conv2d(2, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.relu, self.pool, self.drop = nn.ReLU(), nn.AvgPool2d(2), nn.Dropout(0.3)
        self.norm, self.head = nn.BatchNorm2d(16), nn.Linear(16, 3)

    def features(self, x):
        x = self.pool(self.relu(self.high(self.pool(self.relu(self.low(x))))))
        return self.drop(self.relu(self.norm(x)).flatten(1))

    def forward(self, x):
        return self.head(self.features(x))


class EvaluationBranch(Front):
    """Scales its logits when it is evaluated."""

    def forward(self, x):
        found = super().forward(x)
        return found if self.training else 3 * found - 1


class EvaluationBefore(Front):
    """Centres its inputs when it is evaluated, so that its front begins elsewhere."""

    def forward(self, x):
        return super().forward(x if self.training else x - x.mean((1, 2, 3), keepdim=True))


class EvaluationWithin(Front):
    """Leaves out its second convolution when it is evaluated."""

    def features(self, x):
        x = self.pool(self.relu(self.low(x)))
        x = self.pool(self.relu(self.high(x))) if self.training else self.pool(torch.cat((x, x), 1))
        return self.drop(self.relu(self.norm(x)).flatten(1))


class Auxiliary(Front):
    """A second head helps while it trains."""

    def __init__(self):
        super().__init__()
        self.second = nn.Linear(16, 3)

    def forward(self, x):
        x = self.features(x)
        return self.head(x) + 0.3 * self.second(x) if self.training else self.head(x)


class FrozenFront(Front):
    def __init__(self):
        super().__init__()
        self.low.requires_grad_(False)


class FrozenLater(Front):
    """Its second convolution stays as it is, so that only the first is done by kernels of our own."""

    def __init__(self):
        super().__init__()
        self.high.requires_grad_(False)


class UnusedBeside(Front):
    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(5, 5)


class FunctionalDropout(Front):
    def forward(self, x):
        return self.head(F.dropout(self.features(x), 0.3, self.training))


class StochasticDepth(Front):
    """Leaves out its first head's bias by the toss of Python's coin."""

    def forward(self, x):
        found = super().forward(x)
        return found * 0.5 if self.training and random.random() < 0.5 else found


def doubled(layer, inputs):
    return (2 * inputs[0],)


class Hooked(Front):
    """A hook doubles what its first layer gets."""

    def __init__(self):
        super().__init__()
        self.low.register_forward_pre_hook(doubled)


class Buffered(Front):
    """Counts its calls, and keeps a mean of what it saw."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(16))

    def features(self, x):
        found = super().features(x)
        if self.training:
            self.calls += 1
            self.mean.mul_(0.9).add_(0.1 * found.detach().mean(0))
        return found - self.mean


class Counting(Front):
    """Warms up over its first steps, which it counts in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.training:
            self.steps += 1
        return super().forward(x) * (self.steps / 5).clamp(max=1)


class CumulativeFront(Front):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(16, momentum=None)


class SpectralFront(Front):
    """Its head's weight has norm 1."""

    def __init__(self):
        super().__init__()
        self.head = nn.utils.parametrizations.spectral_norm(self.head)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.back = nn.Linear(32, 32, bias=False), nn.Linear(32, 32)
        self.back.weight = self.into.weight
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.back(torch.tanh(self.into(x.flatten(1)))))


class AttentionDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        x = x.flatten(2).view(len(x), 4, 8)
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


class LstmDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 5, 2, batch_first=True, dropout=0.3), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.lstm(x.flatten(2).view(len(x), 4, 8))[0][:, -1])


class Tokens(nn.Module):
    """Whole numbers in."""

    def __init__(self):
        super().__init__()
        self.words, self.drop, self.head = nn.Embedding(9, 5), nn.Dropout(0.2), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.drop(self.words(x).mean(1)))


class SeveralOutputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(32, 3), nn.Linear(32, 3)

    def forward(self, x):
        return self.one(x.flatten(1)), self.two(x.flatten(1))


@dataclass(frozen=True)
class Entry:
    """A network, and what is expected of it."""

    build: type[nn.Module]
    together: bool  # several train as one
    fuses: bool = False  # kernels of our own do its front, in fp32 on a CPU
    draws: bool = False  # random numbers of its own: it never trains the same on several devices
    keeps: str = ""  # what is said where it does not train as one
    refused: str = ""  # what is said where it can't train on several devices


ENTRIES = {
    "front": Entry(Front, True, True),
    "evaluation branch": Entry(EvaluationBranch, True, True),
    "evaluation before": Entry(EvaluationBefore, True, False),
    "evaluation within": Entry(EvaluationWithin, True, True),
    "auxiliary": Entry(Auxiliary, True, True),
    "frozen front": Entry(FrozenFront, True, False),
    "frozen later": Entry(FrozenLater, True, True),
    "unused beside": Entry(UnusedBeside, False, keeps="spare.weight: takes no part in the loss"),
    "functional dropout": Entry(FunctionalDropout, False, draws=True, keeps="random"),
    "stochastic depth": Entry(StochasticDepth, False, draws=True, keeps="draws random numbers from Python's random"),
    "hooked": Entry(Hooked, True, False),
    "buffered": Entry(Buffered, True, True, refused="whose buffer mean becomes another on each of them"),
    "counting": Entry(Counting, True, True),
    "cumulative": Entry(CumulativeFront, False, True),
    "spectral": Entry(SpectralFront, False, True),
    "tied": Entry(Tied, True),
    "attention dropout": Entry(AttentionDropout, False, draws=True, keeps="random"),
    "lstm dropout": Entry(LstmDropout, False, draws=True),
    "tokens": Entry(Tokens, True),
    "several outputs": Entry(SeveralOutputs, False, keeps="model: found a network that returns a tuple of 2"),
}


class Zoo:
    metric = "validation_accuracy"
    defaults = {"kind": Hyperparameter("front", str, choices=tuple(ENTRIES))}  # noqa: RUF012

    def data(self, config):
        rng = np.random.default_rng(config["data_seed"])
        inputs = rng.standard_normal((60, 2, 4, 4)).astype(np.float32)
        targets = inputs.reshape(60, 2, 16).sum(2).argmax(1) + (inputs[:, 0, 0, 0] > 1)
        if config["kind"] == "tokens":
            inputs = rng.integers(0, 9, (60, 6))
        return Data(*(Split(inputs[a:b], targets[a:b]) for a, b in ((0, 28), (28, 44), (44, 60))))

    def model(self, config):
        return ENTRIES[config["kind"]].build()

    def loss(self, outputs, targets, config):
        return F.cross_entropy(outputs, targets)

    def scores(self, outputs, targets):
        return {"accuracy": (outputs.argmax(1) == targets).double().mean().item()}
