"""Forms packs: trials that can be trained as one, taken together from those that come next."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from pydantic_core import to_json

from tradewind import machine
from tradewind.pack import Pack, Trial, network_of
from tradewind.schedule.trials import Trials
from tradewind.space import names_of
from tradewind.train.hyperparameters import TRAINING

LOOK_AHEAD = 512  # trials among which companions are looked for
LARGEST = {"cuda": 64, "cpu": 8}  # more networks at once gain little on either
KINDS = {"cuda": 16, "cpu": 1}  # of networks beside each other; one after the other where that is not faster
ALIKE = ("device", "devices", "precision")  # in which they agree, and in all that the workload brings


class Packing:
    """Trials on their way from a schedule to an engine. To time, and for functions and commands, one by one."""

    def __init__(self, trials: Trials, workers: int) -> None:
        self._workers, self._ahead = workers, 1
        self._apart = [name for name, known in trials.known.items() if not known.stacks and name != "epochs"]
        self._alike = [name for name in self._apart if name in ALIKE or name not in TRAINING]
        self._devices = "devices" in trials.known
        self._alone = _why_alone(trials, self._apart)
        self._packs = bool(trials.known) and trials.study.purpose == "tune"
        # by what they must have in common, first come first, and by the network that serves them
        self._waiting: dict[bytes, dict[str, list[Trial]]] = {}
        self._split: deque[Pack] = deque()

    def __len__(self) -> int:
        waiting = sum(len(trials) for group in self._waiting.values() for trials in group.values())
        return waiting + sum(len(pack.trials) for pack in self._split)

    def next(self, draw: Callable[[], Trial | None]) -> Pack | None:
        """A pack to hand out now, or None where there is none at the moment."""
        if self._split:
            return self._split.popleft()
        if not self._packs:
            trial = draw()
            return Pack((trial,), why=self._alone) if trial else None
        waiting, networks, last = len(self), sum(map(len, self._waiting.values())), ""
        while networks < self._ahead and waiting < LOOK_AHEAD:
            if (trial := draw()) is None:
                last = ""
                break
            self._ahead = 4 * self._workers * _most(LARGEST, trial)  # other jobs want work, too
            # a gang trains one trial at a time
            network = network_of(trial) if trial.config["devices"] == 1 else trial.key
            group = self._waiting.setdefault(self._values(trial, self._apart), {})
            networks += network not in group
            group.setdefault(network, []).append(trial)
            waiting, last = waiting + 1, network
        if not self._waiting:
            return None
        first = next(iter(next(iter(self._waiting.values())).values()))[0]
        # no larger than leaves work for all workers
        size = min(_most(LARGEST, first), math.ceil(networks / self._workers))
        taken = tuple(self._taken(size, first, last) or self._taken(size, first))
        return Pack(taken, why=self._alone if len({network_of(trial) for trial in taken}) == 1 else "")

    def _taken(self, size: int, first: Trial, but: str = "") -> list[Trial]:
        """The trials of so many networks, of the first one's kind and then of others that may train beside it.

        All `but` one: of the network that was drawn last there may be more to come.
        """
        found: list[Trial] = []
        kinds, alike = _most(KINDS, first), self._values(first, self._alike)
        for common, group in list(self._waiting.items()):
            if not size or not kinds:
                break
            if self._values(next(iter(group.values()))[0], self._alike) != alike:
                continue
            names = [name for name in group if name != but][:size]
            found += [trial for name in names for trial in group.pop(name)]
            size, kinds = size - len(names), kinds - bool(names)
            if not group:
                del self._waiting[common]
        return found

    def slots(self, pack: Pack) -> int:
        """How many workers train this pack together: as many as the devices of its network."""
        return int(pack.trials[0].config["devices"]) if self._devices else 1

    def split(self, pack: Pack) -> None:
        """A pack failed as a whole: its halves are next, until only the guilty trial fails."""
        half = len(pack.trials) // 2
        self._split += [Pack(pack.trials[:half]), Pack(pack.trials[half:])]

    def _values(self, trial: Trial, names: Sequence[str]) -> bytes:
        return to_json([[trial.config[name] for name in names], trial.data_seed])


def _most(of: Mapping[str, int], trial: Trial) -> int:
    """As its device allows; a network that is spread over several has no company on any."""
    if trial.config["devices"] > 1:
        return 1
    device = trial.config["device"]
    return of["cuda" if device == "cuda" or (device == "auto" and machine.gpus()) else "cpu"]


def _why_alone(trials: Trials, apart: Sequence[str]) -> str:
    """Why a network is packed with no other, where that is not for want of others."""
    if not trials.known:
        return ""
    if trials.study.purpose == "time":
        return "to time, every network trains alone"
    varied = [name for name in names_of(trials.study.space) if name in apart]
    own = [name for name in varied if name not in TRAINING]
    if own:
        return f"trials differ in {', '.join(own)}, not declared with stacks=True; such networks can't train as one"
    return f"trials differ in {', '.join(varied)}; such networks can't train as one" if varied else ""
