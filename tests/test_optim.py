"""Our optimisers take the steps of torch's classes, bit for bit, and import nothing that these do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from tradewind.train.optim import Optimizer

CONFIG = {
    "learning_rate": 0.01, "weight_decay": 0.0, "momentum": 0.0, "beta1": 0.9, "beta2": 0.999, "optimizer": "adam",
}  # fmt: skip
CASES: list[tuple[dict[str, Any], Any]] = [
    ({"optimizer": "sgd"}, lambda p: torch.optim.SGD(p, 0.01, fused=True)),
    (
        {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.1},
        lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, weight_decay=0.1, fused=True),
    ),
    ({"optimizer": "adam"}, lambda p: torch.optim.Adam(p, 0.01, fused=True)),
    (
        {"optimizer": "adam", "weight_decay": 0.1, "beta1": 0.7, "beta2": 0.8},
        lambda p: torch.optim.Adam(p, 0.01, betas=(0.7, 0.8), weight_decay=0.1, fused=True),
    ),
    (
        {"optimizer": "adamw", "weight_decay": 0.1},
        lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1, fused=True),
    ),
]


class Late(nn.Module):
    """A layer that takes part only in later steps, a frozen one, and one whose weights lie channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.late, self.frozen = nn.Conv2d(3, 8, 3), nn.Linear(8, 8), nn.Linear(8, 1)
        self.first.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor, late: bool) -> torch.Tensor:
        hidden = self.first(x).mean((2, 3))
        found: torch.Tensor = self.frozen(self.late(hidden) if late else hidden)
        return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("options", "theirs"), CASES, ids=["sgd", "momentum", "adam", "betas", "adamw"])
def test_fifty_steps_are_those_of_torch_bit_for_bit(options: dict[str, Any], theirs: Any, dtype: torch.dtype) -> None:
    found = []
    for ours in (True, False):
        torch.manual_seed(0)
        model = Late().to(dtype)
        optimizer: Any = Optimizer(model.parameters(), {**CONFIG, **options}) if ours else theirs(model.parameters())
        late_from = 0 if options.get("momentum") else 10  # torch's fused momentum can't take up a layer late
        for step in range(50):
            rate = 0.01 * 0.9 ** (step // 10)
            if ours:
                optimizer.rate = rate
            else:
                optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            model(torch.randn(4, 3, 6, 6, dtype=dtype), step >= late_from).square().mean().backward()
            optimizer.step()
        found.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_momentum_takes_up_a_layer_that_gets_its_first_gradient_late() -> None:
    torch.manual_seed(0)
    model = Late()
    before = model.late.weight.detach().clone()
    optimizer = Optimizer(model.parameters(), {**CONFIG, "optimizer": "sgd", "momentum": 0.9})
    for late in (False, True):
        optimizer.zero_grad()
        model(torch.randn(4, 3, 6, 6), late).square().mean().backward()
        optimizer.step()
    gradient = model.late.weight.grad
    assert gradient is not None
    torch.testing.assert_close(model.late.weight.detach(), before - 0.01 * gradient)


def test_rows_of_an_embedding_may_have_sparse_gradients() -> None:
    table = nn.Embedding(5, 3, sparse=True)
    before = table.weight.detach().clone()
    table(torch.tensor([1, 3])).sum().backward()
    Optimizer(table.parameters(), {**CONFIG, "optimizer": "sgd"}).step()
    expected = before.clone()
    expected[[1, 3]] -= 0.01
    torch.testing.assert_close(table.weight.detach(), expected)


def test_training_on_a_cpu_does_not_import_what_torchs_classes_do() -> None:
    """torch._dynamo takes as long to import as torch itself, in every worker."""
    code = f"""
import sys, torch
from torch import nn
from tradewind.train.optim import Optimizer
import tradewind.train.plain
for kind in ("sgd", "adam", "adamw"):
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    Optimizer(model.parameters(), {{**{CONFIG!r}, "optimizer": kind}}).step()
print(sorted(name for name in sys.modules if name == "torch._dynamo"))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
