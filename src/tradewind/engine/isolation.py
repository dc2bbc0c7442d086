"""What a trial does to its process stays with the trial."""

from __future__ import annotations

import gc
import importlib.util
import os
import random
import signal
import sys
import traceback
import warnings

# signal's own functions make enums of all that they return: 70 µs for the handlers
from _signal import getsignal, pthread_sigmask  # type: ignore[import-not-found]
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any, NamedTuple

Setting = tuple[Callable[[], Any], Callable[[Any], object]]  # reads it, sets it

SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def _timers() -> list[bool]:
    return [signal.getitimer(timer)[0] > 0 for timer in TIMERS]


def _set_timers(armed: list[bool]) -> None:
    for timer, was in zip(TIMERS, armed, strict=True):
        if not was:
            signal.setitimer(timer, 0)


def _handlers() -> list[Any]:
    return [getsignal(number) for number in SIGNALS]


def _set_handlers(before: list[Any]) -> None:
    for number, handler in zip(SIGNALS, before, strict=True):
        if handler is not None and getsignal(number) != handler:  # None: not Python's
            with suppress(ValueError):  # only the main thread may
                signal.signal(number, handler)


def _blocked() -> set[int]:
    blocked: set[int] = pthread_sigmask(signal.SIG_BLOCK, ())
    return blocked


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # deleted
        return ""


def _set_folder(before: str) -> None:
    with suppress(OSError):
        os.chdir(before)


def _environment() -> dict[bytes, bytes]:
    return dict(vars(os.environ)["_data"])  # through its public face it takes 50 µs


def _set_environment(before: dict[bytes, bytes]) -> None:
    for name in os.environb.keys() - before.keys():
        del os.environb[name]
    os.environb.update(before)


def _umask() -> int:
    os.umask(before := os.umask(0o077))
    return before


def _set_streams(before: tuple[Any, ...]) -> None:
    sys.stdin, sys.stdout, sys.stderr = before


def _set_path(before: list[str]) -> None:
    sys.path = before.copy()


def _set_filters(before: list[Any]) -> None:
    warnings.resetwarnings()  # also forgets what was decided by the others
    warnings.filters.extend(before)  # type: ignore[attr-defined]


OF_PROCESS: list[Setting] = [
    (_timers, _set_timers),  # first: what they interrupt is this
    (_handlers, _set_handlers),
    (_blocked, lambda was: pthread_sigmask(signal.SIG_SETMASK, was)),
    (_folder, _set_folder),
    (_environment, _set_environment),
    (_umask, os.umask),
    (lambda: (sys.stdin, sys.stdout, sys.stderr), _set_streams),
    (lambda: list(sys.path), _set_path),
    (lambda: list(warnings.filters), _set_filters),
    (gc.isenabled, lambda was: gc.enable() if was else gc.disable()),
    (sys.getrecursionlimit, sys.setrecursionlimit),
]


class Library(NamedTuple):
    """What of a library's state a trial may change, the state of its generator by itself."""

    settings: Callable[[Any], list[Setting]]
    generator: Callable[[Any], list[Setting]]
    seed: Callable[[Any, int], object]


def _torch_settings(torch: Any) -> list[Setting]:
    return [
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.is_grad_enabled, torch.set_grad_enabled),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        (torch.get_default_device, lambda was: torch.set_default_device(None if was.type == "cpu" else was)),
    ]


def _seed_torch(torch: Any, seed: int) -> None:
    torch.default_generator.manual_seed(seed)  # torch.manual_seed takes 250 µs even where there is no GPU
    if torch.version.cuda or torch.version.hip:
        torch.cuda.manual_seed_all(seed)


LIBRARIES = {
    "numpy": Library(lambda numpy: [(numpy.geterr, lambda was: numpy.seterr(**was))], lambda _: [], lambda *_: None),
    "numpy.random": Library(  # which numpy loads when it is first used
        lambda _: [],
        lambda module: [(module.get_state, module.set_state)],
        lambda module, seed: module.seed(seed % 2**32),
    ),
    "torch": Library(_torch_settings, lambda torch: [(torch.get_rng_state, torch.set_rng_state)], _seed_torch),
}


class Isolation(MetaPathFinder):
    """The state of a process before a trial, put back after it; and the generators, seeded for every trial.

    A library is seeded where it is loaded, else once the trial loads it. In a process that is the user's own the
    generators go on afterwards as if nothing had been drawn from them.
    """

    def __init__(self, users_own: bool = False) -> None:
        self._before: list[tuple[Setting, Any]] = []
        self._generators: list[tuple[Setting, Any]] = []
        self._users_own = users_own
        self._known: set[str] = set()
        self._seed = 0
        self._remember(OF_PROCESS)
        sys.meta_path.insert(0, self)

    def close(self) -> None:
        """Put the generators back, and look at imports no longer."""
        for (_, write), state in self._generators:
            write(state)
        with suppress(ValueError):
            sys.meta_path.remove(self)

    def seed(self, seed: int) -> None:
        """Seed the generators of Python and of the libraries that are loaded."""
        self._seed = seed
        self._keep_generators([(random.getstate, random.setstate)])
        random.seed(seed)
        for name in LIBRARIES:
            if name in sys.modules:
                self._loaded(name)

    def restore(self) -> None:
        """Put everything back."""
        for (read, write), before in self._before:
            if read() != before:
                write(before)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """What every import asks: have a library seeded as soon as it is there."""
        if name not in LIBRARIES or name in self._known:
            return None
        self._known.add(name)  # the search below is for the other finders
        spec = importlib.util.find_spec(name)
        self._known.discard(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self._loaded(name)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _loaded(self, name: str) -> None:
        library, module = LIBRARIES[name], sys.modules[name]
        if name not in self._known:
            self._known.add(name)
            self._remember(library.settings(module))
            self._keep_generators(library.generator(module))
        library.seed(module, self._seed)

    def _remember(self, settings: Sequence[Setting]) -> None:
        self._before += [(setting, setting[0]()) for setting in settings]

    def _keep_generators(self, generators: list[Setting]) -> None:
        if self._users_own:
            self._generators += [(generator, generator[0]()) for generator in generators]


@contextmanager
def no_return_from_forks() -> Iterator[None]:
    """End a process that the code inside forked, where it would go on as its parent."""
    owner = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() != owner:
            _leave(error)
        raise
    if os.getpid() != owner:
        _leave(None)


def _leave(error: BaseException | None) -> None:
    """What the interpreter does at its end, but for the exit hooks: they are the parent's."""
    code = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)
