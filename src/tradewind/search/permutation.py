"""A keyed permutation of 0..n-1 in constant memory: any of 10^15 positions in microseconds."""

from __future__ import annotations

import hashlib

ROUNDS = 6


class Permutation:
    """permutation[i] for i in range(n), each value once; a balanced Feistel network that walks its cycles."""

    def __init__(self, n: int, key: str) -> None:
        self._n = n
        self._half = max(1, ((n - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1
        digest = hashlib.blake2b(key.encode(), digest_size=8 * ROUNDS).digest()
        self._keys = [int.from_bytes(digest[8 * k : 8 * k + 8], "big") for k in range(ROUNDS)]

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self._n:
            raise IndexError(index)
        value = self._shuffled(index)
        while value >= self._n:  # at most 4 times on average: the network permutes a power of four
            value = self._shuffled(value)
        return value

    def _shuffled(self, value: int) -> int:
        left, right = value >> self._half, value & self._mask
        for key in self._keys:
            mixed = (right + key) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
            mixed = (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93 & 0xFFFFFFFFFFFFFFFF
            left, right = right, left ^ (mixed >> 32 & self._mask)
        return left << self._half | right
