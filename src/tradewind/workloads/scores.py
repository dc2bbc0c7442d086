"""Scores of yes-or-no forecasts."""

from __future__ import annotations

import torch


def binary_scores(logits: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    """Accuracy, AUC, Brier score, POD, FAR and CSI; a score that these samples leave undefined is left out.

    Undefined: AUC with one class alone, POD (hits among events) without events, FAR (false alarms among
    forecasts of yes, from probability 0.5) without such forecasts, CSI without either; all, with a NaN logit.
    """
    logits, events = logits.detach().double(), targets > 0.5
    if not len(logits) or bool(logits.isnan().any()):
        return {}
    yes = logits >= 0
    brier = (logits.sigmoid() - events.double()).square().mean()
    counts = torch.stack((yes & events, yes & ~events, ~yes & events)).sum(dim=1)
    # one transfer, so one wait for the device
    hits, false_alarms, misses, area, squared = torch.cat(
        (counts.double(), _area(logits, events)[None], brier[None])
    ).tolist()
    scores = {"accuracy": 1.0 - (false_alarms + misses) / len(logits), "brier": squared}
    if 0 < hits + misses < len(logits):
        scores["auc"] = area
    if hits + misses:
        scores["pod"] = hits / (hits + misses)
    if hits + false_alarms:
        scores["far"] = false_alarms / (hits + false_alarms)
    if hits + false_alarms + misses:
        scores["csi"] = hits / (hits + false_alarms + misses)
    return scores


def _area(logits: torch.Tensor, events: torch.Tensor) -> torch.Tensor:
    """The area under the ROC curve from ranks, equal logits sharing their mean rank; NaN with one class."""
    order = logits.sort().values
    ranks = (torch.searchsorted(order, logits) + torch.searchsorted(order, logits, right=True) + 1) / 2.0
    positives = events.sum().double()
    above = (ranks * events).sum(dtype=torch.float64) - positives * (positives + 1) / 2
    return above / (positives * (len(logits) - positives))
