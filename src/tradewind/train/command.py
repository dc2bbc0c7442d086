"""A command line as a workload: its scores are read from a JSON file or the last JSON line it prints."""

from __future__ import annotations

import json
import os
import shlex
import string
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import IO, Any, TextIO

from tradewind.errors import TradewindError
from tradewind.folder import RunFolder
from tradewind.machine import die_with_parent
from tradewind.pack import Outcome, Task, Trial
from tradewind.train.execution import Execution
from tradewind.train.function import numbers
from tradewind.train.interruption import Parts

LONGEST_LINE = 2**20  # of JSON, in bytes


def execute(trial: Trial, task: Task) -> Outcome:
    """Run the command in the study's folder; its output goes to the trial's log as it comes."""
    folder = RunFolder(Path(task.run_folder)).trial(trial.key).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    parts = Parts(folder)
    config = {**trial.config, "seed": trial.seed, "data_seed": trial.data_seed}
    places = {"config": folder / "config.json", "scores": folder / "scores.json", "folder": folder}
    places["config"].write_text(json.dumps(config))
    places["scores"].unlink(missing_ok=True)
    values = {**config, "trial": trial.trial, "repeat": trial.repeat, **places}
    words = [word.format(**values) for word in shlex.split(task.command)]
    environment = {**os.environ, "TRADEWIND_FOLDER": str(folder), "TRADEWIND_SCORES": str(places["scores"])}
    parts.begin()
    began = time.perf_counter() - parts.seconds
    try:
        process = subprocess.Popen(
            words, cwd=task.study_folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 (one system call, no locks)
        )  # fmt: skip
    except OSError as error:
        raise TradewindError(f"the command can't be started: {words[0]}: {error.strerror}") from None
    code, last_line = _watched(process)
    train_s = time.perf_counter() - began
    if code != 0:
        raise TradewindError(f"the command ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}")
    scores = numbers(_scores(places["scores"], last_line))
    times, facts = {"train_s": train_s, "wall_s": train_s}, {"packed_with": 0, **Execution("command").facts()}
    return parts.end(Outcome(trial.key, "done", "", {}, times, scores, {}, facts))


def _watched(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Pass the output on until the command ends; its exit code and its last JSON line."""
    assert process.stdout is not None
    assert process.stderr is not None
    errors = threading.Thread(target=_pass_on, args=(process.stderr, sys.stderr), daemon=True)
    errors.start()
    try:
        last_line = _pass_on(process.stdout, sys.stdout)
        return process.wait(), last_line
    finally:  # the engine `serial` ends an overrun by an exception
        process.kill()
        process.wait()
        errors.join(1.0)
        process.stdout.close()
        process.stderr.close()


def _pass_on(source: IO[bytes], target: TextIO) -> str:
    """Copy output to ours line by line; the last line that looks like a JSON object."""
    found, begins = "", True
    while line := source.readline(LONGEST_LINE):  # a gigabyte without an end of line is not kept in memory
        text = line.decode(errors="replace")
        target.write(text)
        if begins and text.strip().startswith("{"):
            found = text
        begins = line.endswith(b"\n")
    target.flush()
    return found


def _scores(file: Path, last_line: str) -> dict[str, Any]:
    """The scores that a command left; a result without any is a mistake that should be seen."""
    where, text = (str(file), file.read_text()) if file.exists() else ("the last JSON line it printed", last_line)
    if not text:
        raise TradewindError("the command left no scores: print a JSON object as the last line, or write {scores}")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise TradewindError(f"{where} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise TradewindError(f"{where} holds {type(found).__name__}; allowed: a JSON object of numbers")
    return found


def unread(task: Task) -> list[str]:
    """The keys of `data` and `fixed` that nothing hands to the command."""
    fields = {field for _, field, _, _ in string.Formatter().parse(task.command) if field is not None}
    left = [] if "config" in fields else [f"fixed.{name}" for name in task.fixed if name not in fields]
    return [*(f"data.{name}" for name in task.data), *left]
