"""A site's defaults for `tradewind submit`: one small TOML file, written once per cluster."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator

from tradewind.errors import Mistake
from tradewind.study import Part, complaint

VARIABLE = "TRADEWIND_SITE"
UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
SLURM_TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d\d)(?::(\d\d))?")
TIMES = "allowed: a number with s, m, h or d, such as 30m or 2h, or Slurm's own 2:00:00 or 1-00:00:00"


class Site(Part):
    """What every job of a site has; an option of `tradewind submit` goes before it."""

    partition: str = ""
    account: str = ""
    time: str = Field("", description="the time limit of a job, e.g. 2h")
    memory: str = Field("", description="per node, e.g. 64G")
    set_up: list[str] = Field([], description="lines of shell, run before anything else in a job")
    python: str = Field("", description="default: the Python that submits; 'python' if set_up activates one")
    gpus: str = Field("--gpus-per-node={n}", description="how GPUs are asked for, e.g. --gres=gpu:a100:{n}")
    launcher: Literal["srun", "mpiexec"] = Field(
        "srun", description="what starts MPI ranks; mpiexec survives dead ones"
    )
    sbatch: list[str] = Field([], description="further options of sbatch, e.g. --constraint=skylake")

    @field_validator("time")
    @classmethod
    def _time(cls, text: str) -> str:
        if text:
            duration_s(text)
        return text

    @field_validator("gpus")
    @classmethod
    def _gpus(cls, text: str) -> str:
        if "{n}" not in text or not text.startswith("-"):
            raise ValueError(
                f"found {text!r}; allowed: an option of sbatch with {{n}} in it, such as --gres=gpu:{{n}}"
            )
        return text

    @field_validator("sbatch", "set_up")
    @classmethod
    def _lines(cls, lines: list[str]) -> list[str]:
        for line in lines:
            if not line.strip() or "\n" in line:
                raise ValueError(f"found {line!r}; allowed: one line each")
        return lines

    @field_validator("sbatch")
    @classmethod
    def _options(cls, options: list[str]) -> list[str]:
        for option in options:
            if not option.startswith("-"):
                raise ValueError(f"found {option!r}; allowed: options such as --constraint=skylake")
        return options


def site_file() -> Path:
    """Where the defaults of this site are looked for."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "tradewind" / "site.toml"


def load_site() -> Site:
    """The defaults of this site; none where there is no file."""
    path = site_file()
    try:
        content = tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        if os.environ.get(VARIABLE):
            raise Mistake(f"{path}: no such file; {VARIABLE} names it") from None
        return Site.model_validate({})
    except OSError as error:
        raise Mistake(f"{path}: can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Mistake(f"{path}: not TOML: {error}") from None
    try:
        return Site(**content)
    except ValidationError as error:
        raise Mistake(f"{path}: {complaint(error, Site)}") from None


def duration_s(text: str) -> float:
    """Seconds of a time such as 30m, 2h, 2:00:00 or 1-00:00:00."""
    if match := SLURM_TIME.fullmatch(text.strip()):
        days, first, second, third = (int(part or 0) for part in match.groups())
        whole = first * 3600 + second * 60 + third if match[4] or match[1] else first * 60 + second
        found = float(days * 86_400 + whole)
    else:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip())
        found = float(match[1]) * UNITS_S.get(match[2], 0) if match else 0.0
    if not found:
        raise ValueError(f"found {text!r}; {TIMES}")
    return found


def slurm_time(seconds: float) -> str:
    """The same as Slurm writes it, rounded up to its resolution of a minute."""
    minutes = max(1, -int(-seconds // 60))
    days, rest = divmod(minutes, 1440)
    return f"{f'{days}-' if days else ''}{rest // 60:02d}:{rest % 60:02d}:00"
