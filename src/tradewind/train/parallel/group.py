"""How the members of a gang find and tell each other: one store, and one process group while they stay together."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # keeps for ever the group that is there when it is first imported
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from tradewind.pack import Gang

JOINING = timedelta(minutes=10)  # processes of other hosts may take their time to start
LONGEST = timedelta(days=1)  # a dead member is seen by its closed connections or by the engine, not by waiting
A_MOMENT_S = 0.2
LEAVES = "leaves"
HERE = "127.0.0.1"  # not the host's name, which may lead elsewhere
GLOO = "GLOO_SOCKET_IFNAME"
GET_ADDRESS = 0x8915  # SIOCGIFADDR of Linux


class Meeting:
    """The store where a gang meets, in its leader's process. It binds a port that is free: none is guessed.

    It listens on all of the host's addresses; by which one others reach it is for the engine to say.
    """

    def __init__(self) -> None:
        self.store = TCPStore(HERE, 0, None, True, JOINING, wait_for_workers=False)
        self.address = f"{HERE}:{self.store.port}"


class Group:
    """This process as a member of a gang.

    Tensors of the host go by gloo, those of GPUs by NCCL. A member that leaves after an error counts that in the
    store, and by that number all members find each other again; an engine hands out the next trial once all have
    ended the last one. Where an error is one member's own, the others wait for it: the engine ends them.
    """

    def __init__(self, gang: Gang, meeting: Meeting | None) -> None:
        self.gang, self.rank, self.of = gang, gang.rank, gang.of
        host, _, port = gang.meeting.rpartition(":")
        held = meeting is not None and gang.rank == 0 and meeting.store.port == int(port)
        self._store = meeting.store if meeting and held else TCPStore(host, int(port), None, False, JOINING)
        self._leaves = self._store.add(LEAVES, 0)
        if dist.is_initialized():  # of a trainer that this process had before
            _let_go()
        with _gloo_towards(host):
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo",
                store=PrefixStore(f"after-{self._leaves}", self._store),
                rank=gang.rank, world_size=gang.of, timeout=LONGEST,
            )  # fmt: skip

    def whole(self) -> bool:
        """Whether all members that joined are still in it."""
        return bool(self._store.add(LEAVES, 0) == self._leaves)

    def leave(self) -> None:
        """End the membership. Connections close only when torch lets go of the group, so others may wait on."""
        with contextlib.suppress(RuntimeError):  # the leader, and with it the store, may be gone
            self._store.add(LEAVES, 1)
        _let_go()

    def wait(self) -> None:
        """Until all members are here."""
        dist.all_reduce(torch.zeros(1))

    def summed(self, values: list[float]) -> list[float]:
        """The sums of the members' values."""
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return total.tolist()

    def told(self, content: bytes) -> bytes:
        """What rank 0 says; the others' content is not looked at."""
        size = torch.tensor([len(content)])
        dist.broadcast(size, 0)
        said = torch.empty(int(size), dtype=torch.uint8)
        if self.rank == 0:
            said = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else said
        if len(said):
            dist.broadcast(said, 0)
        return said.numpy().tobytes()

    def gathered(self, mine: torch.Tensor, rows: list[int]) -> torch.Tensor | None:
        """On rank 0 the rows of all members in the order of ranks, which have so many each; nothing elsewhere."""
        if self.rank:
            if len(mine):
                dist.send(mine.contiguous(), 0)
            return None
        pieces = [mine, *(mine.new_empty(count, *mine.shape[1:]) for count in rows[1:])]
        for source, piece in enumerate(pieces):
            if source and len(piece):
                dist.recv(piece, source)
        return torch.cat(pieces)


def _let_go() -> None:
    """Leave the process group, which ends a moment later: by then nothing of gloo's threads is under way.

    The end of a group waits for its threads and does not let go of the interpreter meanwhile. A thread that is just
    freeing the tensor of an exchange needs the interpreter, so that both would wait for ever. This process does not
    exit before that: a thread in the middle of ending a group would take it down.
    """
    group = dist.group.WORLD
    dist.destroy_process_group()

    def hold(group: object) -> None:
        time.sleep(A_MOMENT_S)

    threading.Thread(target=hold, args=(group,)).start()


@contextlib.contextmanager
def _gloo_towards(host: str) -> Iterator[None]:
    """Have gloo listen where the meeting's host is reached from, unless the user says where.

    By itself it listens at the address of this host's name, which on many hosts only they themselves can reach.
    """
    name = "" if GLOO in os.environ else _interface(host)
    if name:
        os.environ[GLOO] = name
    try:
        yield
    finally:
        if name:
            del os.environ[GLOO]


def _interface(host: str) -> str:
    """The network interface by which a host is reached; empty where the system does not tell."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # one without an address
                answer = fcntl.ioctl(probe, GET_ADDRESS, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(answer[20:24]) == own:
                    return name
    return ""
