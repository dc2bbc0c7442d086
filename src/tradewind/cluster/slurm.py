"""Talking to Slurm: sbatch, squeue, scontrol, scancel; and which jobs belong to a run folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tradewind.cluster.site import duration_s
from tradewind.errors import Mistake
from tradewind.folder import RunFolder, timestamp

TIMEOUT_S = 60
MOST_ENDED = 20  # of the jobs that have left the queue, so many are asked for
COLUMNS = {"job": "%i", "state": "%T", "reason": "%r", "nodes": "%N", "time_left": "%L", "starts": "%S"}
LIVING = ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "REQUEUED", "REQUEUE_HOLD", "STAGE_OUT")


def installed() -> bool:
    """Whether Slurm's commands are on this machine."""
    return shutil.which("sbatch") is not None and shutil.which("squeue") is not None


def call(*words: str) -> str:
    """What one of Slurm's commands prints."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise Mistake(f"{words[0]}: not on this machine; run this where Slurm is, or add --dry-run") from None
    except subprocess.TimeoutExpired:
        raise Mistake(f"{words[0]}: no answer within {TIMEOUT_S} s; is Slurm's controller running?") from None
    if done.returncode:
        lines = [re.sub(r"^\w+: ((error|fatal): )?", "", line) for line in done.stderr.splitlines() if line.strip()]
        raise Mistake(f"{words[0]}: {'; '.join(lines) or f'ended with {done.returncode}'}")
    return done.stdout


def max_array_size() -> int:
    """How many tasks an array may have here."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", call("scontrol", "show", "config"), re.MULTILINE)
    return int(found[1]) if found else 1001  # Slurm's own default


def cores_per_node(partition: str) -> int | None:
    """How many cores every node of a partition has at least; None where no Slurm can be asked."""
    if not installed():
        return None
    try:
        lines = call("sinfo", "--noheader", "--Node", "--format=%c %P").splitlines()
    except Mistake:
        return None
    rows = [line.split() for line in lines]
    # the default partition has a star behind its name
    asked = [int(cores) for cores, name in rows if (name.rstrip("*") == partition if partition else name[-1] == "*")]
    return min(asked, default=None)


def submit(folder: RunFolder, script: Path, after: str = "") -> str:
    """Hand a script to Slurm, after another job has ended one way or another; the job's number, durably kept."""
    wait = [f"--dependency=afterany:{after}"] if after else []
    job = call("sbatch", "--parsable", *wait, str(script)).strip().partition(";")[0]
    line = json.dumps({"job": job, "script": script.name, "after": after, "submitted": timestamp()}) + "\n"
    handle = os.open(_list(folder), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    return job


def jobs(folder: RunFolder) -> list[str]:
    """The numbers of all jobs that were submitted for a run, in order."""
    try:
        lines = _list(folder).read_text().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            found.append(str(json.loads(line)["job"]))
        except (ValueError, KeyError, TypeError):
            continue  # torn by a full disk
    return found


def queue_state(folder: RunFolder) -> list[dict[str, Any]]:
    """The jobs of a run as Slurm sees them; those that it has forgotten are left out.

    A waiting array is one entry. Where Slurm does not answer, the reason says so; without Slurm there is nothing.
    """
    known = jobs(folder)
    if not known or not installed():
        return []
    try:
        rows = _queued(known)
    except Mistake as error:
        return [_entry(job=job, state="UNKNOWN", reason=str(error)) for job in known]
    seen = {row["job"].partition("_")[0] for row in rows}
    ended = [row for job in known[-MOST_ENDED:] if job not in seen for row in _ended(job)]
    return sorted(ended + rows, key=lambda row: known.index(row["job"].partition("_")[0]))


def queue_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """The queue for people: one line each."""
    lines = []
    for row in found:
        about = [row["state"].lower(), row["reason"] if row["reason"] not in ("", "None") else ""]
        about += [f"on {row['nodes']}" if row["nodes"] else "", f"starts {row['starts']}" if row["starts"] else ""]
        about += [f"{row['time_left_s'] / 60:.0f} min left" if row["time_left_s"] is not None else ""]
        lines.append(f"    job {row['job']} {', '.join(part for part in about if part)}")
    return lines


def cancel(folder: RunFolder) -> list[dict[str, Any]]:
    """Cancel the jobs of a run that have not ended; which they were."""
    if not jobs(folder):
        raise Mistake(f"{folder.path}: no job was submitted for it; `tradewind submit` does that")
    if not installed():
        raise Mistake("scancel: not on this machine; run this where Slurm is")
    living = [row for row in queue_state(folder) if row["state"] in LIVING or row["state"] == "UNKNOWN"]
    if living:
        call("scancel", *sorted({row["job"].partition("_")[0] for row in living}))
    return living


def _queued(known: Sequence[str]) -> list[dict[str, Any]]:
    try:
        text = call("squeue", "--noheader", f"--jobs={','.join(known)}", "--format=" + "|".join(COLUMNS.values()))
    except Mistake as error:
        if "Invalid job id" in str(error):
            return []
        raise
    return [_entry(**dict(zip(COLUMNS, line.split("|"), strict=True))) for line in text.splitlines() if line]


def _ended(job: str) -> list[dict[str, Any]]:
    """What the controller still knows about a job that has left the queue."""
    try:
        text = call("scontrol", "--oneliner", "show", "job", job)
    except Mistake:
        return []
    rows = []
    for line in text.splitlines():
        words = dict(re.findall(r"(\w+)=(\S*)", line))
        if state := words.get("JobState"):
            task = f"_{words['ArrayTaskId']}" if "ArrayTaskId" in words else ""
            reason = words.get("Reason", "")
            rows.append(_entry(job=job + task, state=state, reason=reason, nodes=words.get("NodeList", "")))
    return rows


def _entry(
    job: str, state: str, reason: str = "", nodes: str = "", time_left: str = "", starts: str = ""
) -> dict[str, Any]:
    waits = state == "PENDING"
    try:
        left_s = duration_s(time_left) if state == "RUNNING" else None
    except ValueError:  # unlimited
        left_s = None
    return {
        "job": job, "state": state, "reason": "" if reason == "None" else reason,
        "nodes": "" if nodes in ("(null)", "None") else nodes, "time_left_s": left_s,
        "starts": starts if waits and starts not in ("N/A", "") else None,
    }  # fmt: skip


def _list(folder: RunFolder) -> Path:
    return folder.slurm / "jobs.jsonl"
