"""Scores of forecasts of one class among several."""

from __future__ import annotations

import torch


def class_scores(logits: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    """Accuracy: how often the class with the largest logit is the right one; nothing with a NaN among the logits."""
    if not len(logits) or bool(logits.isnan().any()):
        return {}
    return {"accuracy": (logits.argmax(dim=1) == targets).double().mean().item()}
