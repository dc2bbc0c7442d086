"""How many packs a worker is given at once: one, unless they are shorter than the messages about them."""

from __future__ import annotations

BUNDLE_S = 0.010  # packs that take less together travel in one message
LARGEST_BUNDLE = 64
TRUST = 16  # packs that must have been short for each one more in a bundle: the next may be a long one


class Pace:
    """How short the packs have been since the last long one."""

    def __init__(self) -> None:
        self._count, self._longest_s = 0, 0.0

    def note(self, seconds: float) -> None:
        """A pack has taken so long."""
        if seconds > BUNDLE_S:
            self._count, self._longest_s = 0, 0.0
        else:
            self._count, self._longest_s = self._count + 1, max(seconds, 0.99 * self._longest_s)

    def depth(self) -> int:
        """How many packs a worker may have in hand."""
        return max(1, min(LARGEST_BUNDLE, self._count // TRUST, int(BUNDLE_S / max(self._longest_s, 1e-6))))

    def room(self, in_hand: int) -> int:
        """How many more packs to give to a worker: none while it has more than half of these."""
        depth = self.depth()
        return depth - in_hand if 2 * in_hand <= depth else 0
