"""What `tradewind check` says of packs."""

from __future__ import annotations

from typing import Any


def packs_page(found: dict[str, Any]) -> str:
    """How trials pack, and what that is expected to save."""
    if found["why_not"]:
        return "\n".join([f"  packs      none: {found['why_not']}", *_tried(found["tried"])])
    if not found["looked_at"]:
        return "  packs      nothing is left"
    trials, count = found["looked_at"], found["packs"]
    largest = max(map(int, found["sizes"]))
    sizes = f"{count} pack{'s' * (count > 1)} of up to {largest}" if largest > 1 else "every trial by itself"
    lines = [f"  packs      the next {trials:,} trial{'s' * (trials > 1)}: {sizes}, {_networks(found)}"]
    if found["apart"]:
        kept = ", ".join(f"{name} ({values} values)" for name, values in found["apart"].items())
        lines.append(f"  apart      {kept}: trials that differ in these can't train as one")
    return "\n".join([*lines, *_tried(found["tried"]), f"  saves      {_epochs(found)}; {_faster(found)}"])


def _tried(found: dict[str, Any]) -> list[str]:
    """What came of building the networks of a pack and training them as one for a step."""
    if not found:
        return []
    if found["fault"]:
        return [f"  tried      not known whether networks train as one: {found['fault']}"]
    if found["networks"] > 1:
        return [f"  tried      {_networks(found)} train as one here"]
    return [f"  tried      one by one: {found['why']}"] if found["why"] else []


def _networks(found: dict[str, Any]) -> str:
    many = found["networks"]
    return f"{many:,} network{'s' * (many > 1)}"


def _epochs(found: dict[str, Any]) -> str:
    asked, trained = found["epochs_asked"], found["epochs_trained"]
    if asked == trained:
        return "no epochs, since none are shared"
    return f"{1 - trained / asked:.0%} of the epochs, which are shared ({trained:,} trained for {asked:,})"


def _faster(found: dict[str, Any]) -> str:
    if found["networks"] <= found["packs"]:
        return "no pack holds several networks"
    if found["faster"] is None:
        return "time by packs: not known before trials have run here both in packs and alone"
    return (
        f"in packs an epoch took 1/{found['faster']:.3g} of its time alone ({found['faster_n']:,} trials of this run)"
    )
