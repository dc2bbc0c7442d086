"""A real Slurm of four nodes on this host, for one session: its own munge, controller, ports and folder.

A pytest plugin: `pytest_plugins = ["slurm_cluster"]` in a test file, then the fixture `slurm`, or `slurm_mpi`
where tests start MPI ranks by srun. Where Slurm is missing, see `system`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from system import install, may_install, skip

NODES = ("n1", "n2", "n3", "n4")
MAX_ARRAY_SIZE = 20
PACKAGES = ("slurm-wlm", "munge", "libpmix2")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
WHERE = f"/usr/sbin:/sbin:{os.environ['PATH']}"
CONF = """\
ClusterName=tradewind
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={base}/munge.socket,cred_expire=5
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool/%n
TmpFS={base}/tmp/%n
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd.%n.pid
SlurmctldLogFile={base}/slurmctld.log
SlurmdLogFile={base}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
MpiDefault=none
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=6
InactiveLimit=0
KillWait=5
MinJobAge=300
MaxArraySize={max_array_size}
JobRequeue=1
GresTypes=gpu
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=10 State=UP OverSubscribe=NO PriorityTier=10 PreemptMode=OFF
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 SocketsPerBoard=1 CoresPerSocket=2"
    " ThreadsPerCore=1 RealMemory=4000 Gres=gpu:2 State=UNKNOWN"
)


class SlurmCluster:
    """The daemons, and what tests do to them."""

    def __init__(self, base: Path) -> None:
        self.base, self.conf = base, base / "slurm.conf"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        host, ports = socket.gethostname().partition(".")[0], free_ports(1 + len(NODES))
        nodes = [NODE.format(name=name, host=host, port=port) for name, port in zip(NODES, ports[1:], strict=True)]
        for part in ("state", *(f"{kind}/{name}" for kind in ("spool", "tmp") for name in NODES)):
            (base / part).mkdir(parents=True)
        about = {"host": host, "controller": ports[0], "max_array_size": MAX_ARRAY_SIZE}
        self.conf.write_text(CONF.format(base=base, nodes="\n".join(nodes), **about))
        # any two devices serve: Slurm counts them, hands them out and sets CUDA_VISIBLE_DEVICES
        (base / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")

    def start(self) -> None:
        """Start everything and wait until all nodes are idle."""
        key = self.base / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        files = {"socket": "munge.socket", "key-file": key.name, "log-file": "munge.log",
                 "pid-file": "munge.pid", "seed-file": "munge.seed"}  # fmt: skip
        paths = [f"--{option}={self.base / name}" for option, name in files.items()]
        self._start("munged", "munged", "--foreground", "--force", *paths)
        wait_until((self.base / "munge.socket").exists, 10, "munge starts")
        self._start("slurmctld", "slurmctld", "-D", "-f", str(self.conf))
        for name in NODES:
            self.start_node(name)
        wait_until(lambda: self.idle() == set(NODES), 30, "all nodes are idle", self.log)

    def stop(self) -> None:
        """End all jobs and daemons, and whatever they have left behind."""
        with contextlib.suppress(subprocess.SubprocessError, AssertionError):
            self.call("scancel", "--user=root")
            wait_until(lambda: not self.call("squeue", "--noheader"), 15, "all jobs are cancelled")
        for name in reversed(self._daemons):
            self._daemons[name].terminate()
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.processes(), 5, "all processes have ended")
        self._kill()
        for daemon in self._daemons.values():
            daemon.wait(timeout=10)

    def start_node(self, name: str) -> None:
        """Start the slurmd of a node."""
        self._start(name, "slurmd", "-D", "-N", name, "-f", str(self.conf))

    def kill_node(self, name: str) -> None:
        """All that runs on a node is gone at once, as if its power had failed."""
        self._kill(name)
        self._daemons.pop(name).wait(timeout=10)

    def call(self, *words: object) -> str:
        """What one of Slurm's commands prints."""
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=30, check=False)
        if done.returncode:
            raise subprocess.SubprocessError(f"{words}: {done.stderr.strip()}")
        return done.stdout.strip()

    def idle(self) -> set[str]:
        """The nodes that wait for work."""
        with contextlib.suppress(subprocess.SubprocessError):
            return set(self.call("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N").split())
        return set()

    def job(self, job: str) -> dict[str, str]:
        """What the controller knows about a job or an array's task."""
        words = self.call("scontrol", "--oneliner", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait_for(self, job: str, states: str, within_s: float) -> None:
        """Wait until a job, or every task of an array, is in one of these states."""

        def there() -> bool:
            lines = self.call("scontrol", "--oneliner", "show", "job", job).splitlines()
            return all(line.partition("JobState=")[2].split()[0] in states.split() for line in lines)

        wait_until(there, within_s, f"job {job} is {states}", lambda: self._account(job))

    def processes(self, node: str = "") -> list[psutil.Process]:
        """Daemons, steps, jobs and all that they have started, here or on one node."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and self._owns(process, node):
                    found.append(process)
        return found

    def _account(self, job: str) -> str:
        said = Path(self.job(job)["StdOut"])
        return f"{self.call('scontrol', 'show', 'job', job)}\n{said.read_text() if said.exists() else ''}"

    def _owns(self, process: psutil.Process, node: str) -> bool:
        if process.pid == os.getpid():
            return False
        if process.name() == "slurmstepd":  # has no environment, but its node's log open
            logs = {self.base / f"slurmd.{name}.log" for name in ([node] if node else NODES)}
            return any(Path(file.path) in logs for file in process.open_files())
        env = process.environ()
        of_node = (
            not node or env.get("SLURMD_NODENAME") == node or process.cmdline()[:4] == ["slurmd", "-D", "-N", node]
        )
        return of_node and env.get("SLURM_CONF") == str(self.conf)

    def log(self) -> str:
        """The daemons' last words."""
        return "\n".join(f"{p.name}: {p.read_text()[-1500:]}" for p in sorted(self.base.glob("*.log")))

    def _kill(self, node: str = "") -> None:
        for process in self.processes(node):
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _start(self, name: str, *command: str) -> None:
        # a session that is itself killed takes its daemons with it
        with open(self.base / f"{name}.out", "ab") as out:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                env={**os.environ, "PATH": WHERE, "SLURM_CONF": str(self.conf)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_until(
    true: Callable[[], bool], within_s: float, what: str, more: Callable[[], str] = str, every_s: float = 0.1
) -> None:
    """Wait for something, or fail and say for what."""
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, f"waited {within_s} s until {what}\n{more()}"
        time.sleep(every_s)


def missing() -> str:
    """The first of Slurm's programs that is not here, or nothing."""
    return next((name for name in PROGRAMS if not shutil.which(name, path=WHERE)), "")


def pmix_library() -> Path | None:
    """Where Slurm's plugin looks for PMIx: Debian's package has the library only under its full name."""
    found = sorted(Path("/usr/lib").glob("*/pmix2/lib/libpmix.so.2"))
    return found[0].with_name("libpmix.so") if found else None


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A running cluster of four nodes, and an environment in which sbatch and the others find it."""
    if missing() and may_install():
        install(*PACKAGES)
    if missing() or os.geteuid() != 0:
        skip(f"Slurm ({missing() or 'its daemons need root'})")
    library = pmix_library()  # looked for when slurmd starts
    if library is not None and not library.exists() and may_install():
        library.symlink_to("libpmix.so.2")
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(cluster.conf))
        patch.setenv("PATH", WHERE)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
    assert not cluster.processes()


@pytest.fixture(scope="session")
def slurm_mpi(slurm: SlurmCluster) -> SlurmCluster:
    """The same cluster, where `srun --mpi=pmix` starts MPI ranks."""
    library = pmix_library()
    if library is None or not library.exists():
        skip(f"Slurm with PMIx ({library or 'libpmix2'})")
    return slurm
