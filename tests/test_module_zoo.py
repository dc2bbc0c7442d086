"""A zoo of networks under every backend: each trains and evaluates as the plain loop does, by the path expected."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from module_zoo import ENTRIES, Zoo
from safetensors.torch import load_file
from test_parallel import Workers, furthest

from tradewind.folder import RunFolder
from tradewind.pack import Outcome, Pack
from tradewind.schedule.trials import Trials
from tradewind.study import Study
from tradewind.train import plain, profile
from tradewind.train.trainer import Trainer
from tradewind.workloads.contract import Split

KINDS = [kind for kind in ENTRIES if kind != "several outputs"]
FP32 = 1e-5  # of a loss, over six steps: what kernels of our own and torch round apart

pytestmark = pytest.mark.usefixtures("one_thread")
avx2 = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in {"AVX2", "AVX512"}, reason="kernels of our own need AVX2"
)


@pytest.fixture(autouse=True)
def packs_always_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks this small would never be trained as one."""
    monkeypatch.setattr(profile, "PAYS", math.inf)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    found = Workers()
    yield found
    for process in found.processes:
        process.kill()
        process.join()


def trials(folder: Path, kind: str, repeats: int = 1, precision: str = "fp64", **fixed: Any) -> Trials:
    """Of a network of the zoo, as a user's study has it."""
    folder.mkdir(exist_ok=True)
    (folder / "zoo.py").write_text((Path(__file__).parent / "module_zoo.py").read_text())
    held = {"kind": kind, "batch_size": 10, "epochs": 2, "optimizer": "adamw", "weight_decay": 0.1, "device": "cpu"}
    content = {"name": "zoo", "workload": "zoo:Zoo", "repeats": repeats}
    (folder / "study.json").write_text(json.dumps(content | {"fixed": {**held, "precision": precision, **fixed}}))
    return Trials(Study.load(folder / "study.json"))


def fit(folder: Path, these: Trials) -> list[Outcome]:
    """All trials as a worker with one thread fits them."""
    random.seed(0)
    task = these.task(str(RunFolder.create(folder / "run").path), threads=1)
    return list(Trainer(task).fit(Pack(tuple(these[k] for k in range(these.size))), lambda *_: None))


def by_plain_loop(folder: Path, these: Trials) -> list[Outcome]:
    """Each trial by the reference."""
    random.seed(0)
    workload, folder = Zoo(), RunFolder.create(folder / "plain").path
    found = []
    for trial in (these[k] for k in range(these.size)):
        data = workload.data({**trial.config, "data_seed": trial.data_seed})
        found.append(plain.train(trial, workload, data, these.task(str(folder), threads=1), lambda *_: None))
    return found


def weights(folder: Path, outcome: Outcome) -> dict[str, torch.Tensor]:
    return load_file(RunFolder(folder).model(outcome.key))


def assert_same(one: Outcome, other: Outcome, most: float) -> None:
    """Every loss and score, in training, validation and test."""
    assert (one.state, other.state) == ("done", "done")
    for row, its in zip([*one.curve, one.scores], [*other.curve, other.scores], strict=True):
        for name in its.keys() - {"elapsed_s", "wait_s", "utilisation"}:
            if not name.endswith(("_s", "accuracy")) and name in row:
                assert row[name] == pytest.approx(its[name], rel=most, abs=most), name


@pytest.mark.parametrize("kind", KINDS)
def test_the_plain_loop_evaluates_what_it_has_trained(kind: str, tmp_path: Path) -> None:
    """By its weights in a network made anew, in bare torch."""
    these = trials(tmp_path, kind)
    (outcome,) = by_plain_loop(tmp_path, these)
    model = Zoo().model(these[0].config).double()
    model.load_state_dict(weights(tmp_path / "plain", outcome))
    test: Split = Zoo().data({**these[0].config, "data_seed": 0}).test
    inputs = torch.from_numpy(test.inputs)
    with torch.no_grad():
        outputs = model.eval()(inputs.double() if inputs.is_floating_point() else inputs)
    loss = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(test.targets))
    assert outcome.scores["loss"] == pytest.approx(loss.item(), rel=1e-12)
    assert outcome.curve[-1]["train_loss"] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_networks_as_one_are_what_the_plain_loop_makes_of_each(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    these, entry = trials(tmp_path, kind, repeats=3), ENTRIES[kind]
    found = fit(tmp_path, these)
    said = capsys.readouterr().out
    assert {outcome.facts["execution"]["backend"] for outcome in found} == {"ensemble" if entry.together else "eager"}
    assert {outcome.facts["packed_with"] for outcome in found} == {2 if entry.together else 0}
    assert ("networks one by one: " in said) != entry.together
    assert entry.keeps in said
    for one, other in zip(found, by_plain_loop(tmp_path, these), strict=True):
        assert_same(one, other, 1e-9)
        assert furthest(weights(tmp_path / "run", one), weights(tmp_path / "plain", other)) < 1e-9


@avx2
@pytest.mark.parametrize("networks", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_networks_under_kernels_of_our_own_are_those_of_the_plain_loop(
    kind: str, networks: int, tmp_path: Path
) -> None:
    sgd = {"optimizer": "sgd", "learning_rate": 0.05, "momentum": 0.9}  # Adam makes much of gradients that are none
    these, entry = trials(tmp_path, kind, repeats=networks, precision="fp32", **sgd), ENTRIES[kind]
    found = fit(tmp_path, these)
    assert {outcome.facts["execution"]["kernels"] for outcome in found} == {"front" if entry.fuses else ""}
    for one, other in zip(found, by_plain_loop(tmp_path, these), strict=True):
        assert_same(one, other, FP32)


@pytest.mark.parametrize("parallel", ["ddp", "dp"])
@pytest.mark.parametrize("kind", KINDS)
def test_networks_on_two_devices_are_those_of_one(kind: str, parallel: str, workers: Workers, tmp_path: Path) -> None:
    one = trials(tmp_path / "one", kind)
    (alone,) = by_plain_loop(tmp_path / "one", one)
    two = trials(tmp_path / "two", kind, devices=2, parallel=parallel)
    task = two.task(str(RunFolder.create(tmp_path / "two" / "run").path), threads=1)
    answers = workers.fit(two[0], 2, workers.gang(2, task))
    if ENTRIES[kind].refused:
        assert [word for word, _ in answers] == ["error"] * 2
        assert all(ENTRIES[kind].refused in what for _, what in answers)
        return
    assert [word for word, _ in answers] == ["ok"] * 2, answers
    outcome = answers[0][1][0][0]
    assert outcome.facts["execution"]["backend"] == parallel
    assert outcome.facts["devices"] == 2
    if ENTRIES[kind].draws:
        assert outcome.state == "done"
        return
    assert_same(outcome, alone, 1e-9)
    assert furthest(weights(tmp_path / "two" / "run", outcome), weights(tmp_path / "one" / "plain", alone)) < 1e-9


SAID = (
    "model: found a network that returns a tuple of 2; allowed: one tensor of outputs, which loss and scores take; "
    "put several into one, as by torch.cat"
)


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_several_outputs_are_one_clear_error(repeats: int, precision: str, tmp_path: Path) -> None:
    from tradewind.errors import WorkloadError

    with pytest.raises(WorkloadError) as told:
        fit(tmp_path, trials(tmp_path, "several outputs", repeats, precision))
    assert str(told.value) == SAID


@pytest.mark.parametrize("parallel", ["ddp", "dp"])
def test_several_outputs_are_one_clear_error_of_all_members(parallel: str, workers: Workers, tmp_path: Path) -> None:
    these = trials(tmp_path, "several outputs", devices=2, parallel=parallel)
    task = these.task(str(RunFolder.create(tmp_path / "run").path), threads=1)
    assert workers.fit(these[0], 2, workers.gang(2, task)) == [("error", f"WorkloadError: {SAID}")] * 2


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_graphs_of_networks_are_what_the_plain_loop_makes_of_each(kind: str, precision: str, tmp_path: Path) -> None:
    these, entry = trials(tmp_path, kind, repeats=3, precision=precision, device="cuda"), ENTRIES[kind]
    found = fit(tmp_path, these)
    for one, other in zip(found, by_plain_loop(tmp_path, these), strict=True):
        assert one.facts["execution"]["graph"] == entry.together
        if not entry.draws:
            assert_same(one, other, 5e-2 if precision == "bf16" else 1e-3)
