from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import TRADEWIND, Cli, WriteStudy

from tradewind import Results, Study
from tradewind.errors import StudyError
from tradewind.run import run as run_study
from tradewind.schedule.trials import Trials
from tradewind.studies import names, path_of
from tradewind.study import Range, schema

WORK = """
from pathlib import Path

def f(config, trial):
    with open(Path(__file__).with_name("calls.txt"), "a") as calls:
        print(config["x"], trial.repeat, file=calls)
    return {"score": 10 * config["x"] + trial.repeat}

def g(config):
    return config["x"]
"""
DESIGNED = {  # the example of the design
    "name": "batch size against augmentation",
    "workload": "storm",
    "purpose": "time",
    "data": {"source": "synthetic", "train": 8192, "validation": 1024, "test": 2048},
    "space": {
        "epochs": [5, 10, 15],
        "batch_size": [128, 256, 512],
        "data_multiplier": [1, 2, 4],
        "augment": ["pre", "live"],
        "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True, "steps": 3},
    },
    "fixed": {"optimizer": "adam", "devices": 1},
    "where": ["batch_size / devices <= 32768"],
    "search": {"method": "grid"},
    "repeats": 3,
    "stop": {"max_epochs": 400, "target": {"validation_loss": 0.0016384}, "timeout_s": 3600},
}
BASE: dict[str, Any] = {
    "name": "base",
    "workload": "finished_work:f",
    "space": {"x": [1, 2, 3]},
    "fixed": {"y": 5},
    "where": ["x < 3"],
    "repeats": 2,
    "stop": {"max_epochs": 9},
}


def done(run: Path) -> list[dict[str, Any]]:
    """The records of a run, in order of trial."""
    return list(Results.load(run).records())


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ({"low": 1, "high": 9, "steps": 5}, [1, 3, 5, 7, 9]),
        ({"low": 1, "high": 4, "steps": 3}, [1, 2, 4]),
        ({"low": 0, "high": 1, "steps": 5, "type": "float"}, [0.0, 0.25, 0.5, 0.75, 1.0]),
        ({"low": 0.1, "high": 0.3, "steps": 3}, [0.1, 0.2, 0.3]),
        ({"low": 1e-4, "high": 1e-2, "log": True, "steps": 3}, [1e-4, 1e-3, 1e-2]),
        ({"low": 1e-5, "high": 1e-1, "log": True, "steps": 5}, [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]),
        ({"low": 16, "high": 1024, "log": True, "steps": 4}, [16, 64, 256, 1024]),
        ({"low": -2.0, "high": 2.0, "steps": 2}, [-2.0, 2.0]),
        ({"low": 7, "high": 9, "steps": 1}, [7]),
        ({"low": 3, "high": 3, "steps": 1}, [3]),
    ],
)
def test_a_range_with_steps_holds_both_ends_and_exact_values_between(spec: Any, values: list[float]) -> None:
    found = Range(**spec).values()
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


def test_lists_ranges_fixed_and_where_become_the_configs_of_the_trials(command: Cli, write_study: WriteStudy) -> None:
    space = {
        "x": {"low": 1, "high": 3, "steps": 3},
        "rate": {"low": 1e-4, "high": 1e-2, "log": True, "steps": 3},
        "kind": ["a", None, [8, 16], True],
    }
    study = {
        "name": "all kinds",
        "workload": "work:f",
        "space": space,
        "fixed": {"y": {"deep": 1.5}},
        "where": ["x + 1 <= 3", "rate < 0.005 or x == 2"],
    }
    path = write_study(study, WORK)
    found = json.loads(command("check", path, "--json").stdout)
    assert (found["combinations"], found["trials"], found["exact"]) == (36, 20, True)
    assert command("run", path, "--out", "run", "--engine", "serial").returncode == 0
    found = [record["config"] for record in done(path.parent / "run")]
    assert len(found) == 20
    assert found[0] == {"x": 1, "rate": 1e-4, "kind": "a", "y": {"deep": 1.5}}
    assert {config["rate"] for config in found if config["x"] == 1} == {1e-4, 1e-3}
    assert {config["rate"] for config in found if config["x"] == 2} == {1e-4, 1e-3, 1e-2}
    assert [config["kind"] for config in found[:4]] == ["a", None, [8, 16], True]
    assert all(type(config["x"]) is int for config in found)


def test_trials_are_numbered_by_their_place_in_the_unfiltered_space(command: Cli, write_study: WriteStudy) -> None:
    path = write_study({**BASE, "workload": "work:f", "where": ["x != 2"]}, WORK)
    assert command("run", path, "--out", "run", "--engine", "serial").returncode == 0
    found = {record["trial"]: (record["config"]["x"], record["repeat"]) for record in done(path.parent / "run")}
    assert found == {0: (1, 0), 1: (1, 1), 4: (3, 0), 5: (3, 1)}


def test_repeat_r_uses_seed_plus_r_and_one_data_seed_to_tune_but_its_own_to_time(
    command: Cli, write_study: WriteStudy
) -> None:
    for purpose, data_seeds in (("tune", [7, 7]), ("time", [7, 8])):
        study = {**BASE, "workload": "work:f", "purpose": purpose, "space": {"x": [1]}, "seed": 40, "data_seed": 7}
        path = write_study(study, WORK)
        assert command("run", path, "--out", purpose, "--engine", "serial").returncode == 0
        found = done(path.parent / purpose)
        assert [record["seed"] for record in found] == [40, 41]
        assert [record["data_seed"] for record in found] == data_seeds


@pytest.mark.parametrize(
    ("vary", "seeds", "data_seeds", "split"),
    [
        (None, [0, 1], [0, 0], True),
        (["seed", "data_seed"], [0, 1], [0, 1], False),
        (["data_seed"], [0, 0], [0, 1], False),
    ],
)
def test_vary_says_which_seeds_grow_with_the_repeat_and_advice_for_which_split_it_holds(
    command: Cli,
    write_study: WriteStudy,
    vary: list[str] | None,
    seeds: list[int],
    data_seeds: list[int],
    split: bool,
) -> None:
    work = "def f(config): return config['x'] + config['seed'] / 100 + config['data_seed'] / 90"
    study = {**BASE, "workload": "work:f", "space": {"x": [1, 2]}, "repeats": 2, **({"vary": vary} if vary else {})}
    path = write_study(study, work)
    assert command("run", path, "--out", "run", "--engine", "serial").returncode == 0
    found = [record for record in done(path.parent / "run") if record["config"]["x"] == 1]
    assert [record["seed"] for record in found] == seeds
    assert [record["data_seed"] for record in found] == data_seeds
    assert ("for this split" in command("advise", "run").stdout.replace("\n ", "")) == split


def test_what_repeats_vary_is_not_changed_afterwards(command: Cli, write_study: WriteStudy) -> None:
    path = write_study({**BASE, "workload": "work:f", "space": {"x": [1]}}, WORK)
    assert command("run", path, "--out", "run", "--engine", "serial").returncode == 0
    same = command("run", path, "--out", "run", "--engine", "serial", "--set", 'vary=["seed"]')
    assert same.returncode == 0
    other = command("run", path, "--out", "run", "--engine", "serial", "--set", 'vary=["seed","data_seed"]')
    assert (other.returncode, 'vary was ["seed"], is now ["data_seed", "seed"]' in other.stderr) == (2, True)
    wrong = command("check", path, "--set", 'vary=["weights"]')
    assert (wrong.returncode, "vary" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("sets", "combinations", "trials"),
    [
        ([], 12, 24),
        (["space.batch_size=[64,128]"], 8, 16),
        (["repeats=5"], 12, 60),
        (["space.kernel=[3,5]", "repeats=1"], 24, 24),
        (['where=["batch_size < 1000"]'], 12, 16),
        (['space.dropout={"low": 0, "high": 0.5, "steps": 6}'], 72, 144),
        (["stop.max_epochs=3"], 12, 24),
    ],
)
def test_set_changes_one_key_of_the_study(sets: list[str], combinations: int, trials: int) -> None:
    found = Trials(Study.load(path_of("quick"), sets))
    assert (found.space.size, found.count()) == (combinations, (trials, True))


def test_set_on_the_command_line_takes_json_or_plain_text(cli: Cli) -> None:
    answer = cli("check", "quick", "--json", "--set", "space.batch_size=[64,128]", "--set", "name=plain text")
    found = json.loads(answer.stdout)
    assert (found["name"], found["space"]["batch_size"], found["trials"]) == ("plain text", 2, 16)


@pytest.mark.parametrize("text", ["repeats", "=3", "space..x=1", "name.deeper=1", "space.batch_size.x=1"])
def test_a_set_that_names_no_key_is_a_mistake(text: str) -> None:
    with pytest.raises(StudyError, match=rf"^--set {re.escape(text)}: "):
        Study.load(path_of("quick"), [text])


def accepts(part: dict[str, Any], value: Any, top: dict[str, Any]) -> bool:
    """The few words of JSON Schema that the study's schema uses."""
    if "$ref" in part:
        return accepts(top["$defs"][part["$ref"].rpartition("/")[2]], value, top)
    if "anyOf" in part:
        return any(accepts(one, value, top) for one in part["anyOf"])
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
    kind = part.get("type")
    if kind == "null" or (kind in kinds and not isinstance(value, kinds[kind])):
        return kind == "null" and value is None
    if kind in ("integer", "number") and isinstance(value, bool):
        return False
    if value not in part.get("enum", [value]) or value != part.get("const", value):
        return False
    if isinstance(value, dict):
        known, others = part.get("properties", {}), part.get("additionalProperties", True)
        if set(part.get("required", [])) - value.keys() or (others is False and value.keys() - known.keys()):
            return False
        parts = {name: known.get(name, others if isinstance(others, dict) else {}) for name in value}
        return all(accepts(parts[name], item, top) for name, item in value.items())
    return not isinstance(value, list) or all(accepts(part.get("items", {}), item, top) for item in value)


def test_the_schema_names_every_key_and_accepts_the_designed_and_the_bundled_studies(command: Cli) -> None:
    found = json.loads(command("studies", "--schema").stdout)
    assert found == schema()
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(found["properties"]) == set(Study.model_fields)
    assert found["required"] == ["name"]
    assert found["additionalProperties"] is False
    assert accepts(found, DESIGNED, found)
    assert names() != []
    for name in names():
        assert accepts(found, json.loads(path_of(name).read_text()), found)


@pytest.mark.parametrize(
    "change",
    [
        {"nmae": "x"},
        {"space": {"x": 5}},
        {"space": {"x": {"low": 1}}},
        {"space": {"x": {"low": 1, "high": 2, "step": 3}}},
        {"repeats": "three"},
        {"purpose": "tuning"},
        {"stop": {"max_epoch": 3}},
        {"where": "x < 1"},
    ],
)
def test_the_schema_refuses_what_the_study_refuses(change: dict[str, Any]) -> None:
    assert not accepts(schema(), DESIGNED | change, schema())
    with pytest.raises(StudyError):
        Study(**(DESIGNED | change))


def test_every_bundled_study_is_valid_and_says_what_it_shows(command: Cli) -> None:
    listing = command("studies").stdout
    for name in names():
        assert Study.load(path_of(name)).description
        assert name in listing
        assert Trials(Study.load(path_of(name))).count()[0] > 0
    assert json.loads(command("studies", "quick").stdout) == json.loads(path_of("quick").read_text())


def test_a_study_in_python_is_the_same_as_its_file(write_study: WriteStudy) -> None:
    path = write_study(DESIGNED)
    assert Study(**DESIGNED).plain() == Study.load(path).plain()
    assert Study(**Study(**DESIGNED).plain()).plain() == Study(**DESIGNED).plain()


def test_a_function_at_the_top_of_a_module_can_be_the_workload_and_an_inner_one_can_not() -> None:
    def inner(config: dict[str, Any]) -> float:
        return 0.0

    assert Study(name="s", workload=accepts).workload == f"{__name__}:accepts"
    with pytest.raises(StudyError, match=r"inner' is defined inside another function; move it to the top"):
        Study(name="s", workload=inner)
    with pytest.raises(StudyError, match="inside another function"):
        Study(name="s", workload=lambda config: 0.0)


def test_more_values_and_repeats_run_only_what_is_new(cli: Cli, write_study: WriteStudy) -> None:
    study = {"name": "s", "workload": "work:f", "space": {"x": [1, 2]}}
    path = write_study(study, WORK)
    run, calls = path.parent / "run", path.with_name("calls.txt")
    assert cli("run", path, "--out", run, "--quiet").returncode == 0
    before = {record["key"]: record | {"trial": 0} for record in done(run)}
    calls.unlink()
    write_study({**study, "space": {"x": [0, 1, 2, 3]}, "repeats": 2})
    assert cli("run", path, "--out", run, "--quiet").returncode == 0
    assert sorted(calls.read_text().splitlines()) == ["0 0", "0 1", "1 1", "2 1", "3 0", "3 1"]
    after = {record["key"]: record | {"trial": 0} for record in done(run)}
    assert len(after) == 8
    # the position of a trial is that of the newest edition; all else stays as it was recorded
    assert all({**after[key], "trial": 0} == {**record, "trial": 0} for key, record in before.items())
    found = json.loads(cli("status", run, "--json").stdout)
    assert (found["trials"], found["done"], found["left"], found["duplicates"]) == (8, 8, 0, 0)


def test_after_an_extension_show_still_means_the_trial_that_best_names(command: Cli, write_study: WriteStudy) -> None:
    study = {"name": "s", "workload": "work:f", "space": {"x": [9, 2]}}
    path = write_study(study, WORK)
    assert command("run", path, "--out", "run", "--engine", "serial").returncode == 0
    write_study({**study, "space": {"x": [1, 9, 2]}})
    assert command("run", path, "--out", "run", "--engine", "serial").returncode == 0
    best = json.loads(command("best", "run", "--json").stdout)
    assert best["config"] == {"x": 9}
    assert json.loads(command("show", "run", best["trial"], "--json").stdout)["config"] == {"x": 9}


def test_an_extended_study_runs_on_when_some_of_it_was_left(command: Cli, write_study: WriteStudy) -> None:
    study = {"name": "s", "workload": "work:f", "space": {"x": list(range(6))}, "where": ["x < 2"]}
    path = write_study(study, WORK)
    run, calls = path.parent / "run", path.with_name("calls.txt")
    assert command("run", path, "--out", run, "--engine", "serial").returncode == 0
    write_study({**study, "where": [], "description": "new words", "retries": 1, "name": "another name"})
    assert command("run", path, "--out", run, "--engine", "serial").returncode == 0
    assert sorted(calls.read_text().splitlines()) == [f"{x} 0" for x in range(6)]
    assert json.loads((run / "study.json").read_text())["name"] == "another name"


def test_a_fixed_value_may_become_a_list_that_holds_it(command: Cli, write_study: WriteStudy) -> None:
    study = {"name": "s", "workload": "work:f", "space": {"x": [1]}, "fixed": {"y": 5}}
    path = write_study(study, WORK)
    assert command("run", path, "--out", "run", "--engine", "serial").returncode == 0
    write_study({**study, "space": {"x": [1], "y": [4, 5]}, "fixed": {}})
    assert command("run", path, "--out", "run", "--engine", "serial").returncode == 0
    found = done(path.parent / "run")
    assert [record["config"]["y"] for record in found] in ([4, 5], [5, 4])
    assert path.with_name("calls.txt").read_text() == "1 0\n1 0\n"


def test_a_value_written_as_1_0_is_the_one_that_was_written_as_1(command: Cli, write_study: WriteStudy) -> None:
    study = {"name": "s", "workload": "work:f", "space": {"x": [1]}}
    path = write_study(study, WORK)
    assert command("run", path, "--out", "run", "--engine", "serial").returncode == 0
    write_study({**study, "space": {"x": [1.0, 2]}})
    assert command("run", path, "--out", "run", "--engine", "serial").returncode == 0
    assert Results.load(path.parent / "run").counts()["done"] == 2


def test_a_default_may_become_a_list_that_holds_it(tmp_path: Path) -> None:
    data = {"train": 32, "validation": 16, "test": 16}
    study = {"name": "s", "workload": "storm", "data": data, "fixed": {"epochs": 1}}

    def go(**change: Any) -> dict[int, dict[str, Any]]:
        results = run_study(Study(**(study | change)), tmp_path / "run", engine="serial")
        assert results.duplicates == 0
        return {record["config"]["batch_size"]: record for record in results.records()}

    first = go()
    assert list(first) == [128]
    second = go(space={"batch_size": [64, 128]})
    assert sorted(second) == [64, 128]
    assert (first[128]["trial"], second[128]["trial"]) == (0, 1)
    assert {**second[128], "trial": 0} == first[128]
    with pytest.raises(StudyError, match=re.escape("batch_size was [64, 128], is now [64, 256], without 128")):
        go(space={"batch_size": [64, 256]})
    with pytest.raises(StudyError, match=re.escape("learning_rate was [0.001], is now [0.5], without 0.001")):
        go(space={"batch_size": [64, 128]}, fixed={"epochs": 1, "learning_rate": 0.5})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of BASE that has ended, with its study beside it."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "finished_work.py").write_text(WORK)
    (folder / "study.json").write_text(json.dumps(BASE))
    subprocess.run([TRADEWIND, "run", "study.json", "--out", "run", "--quiet"], cwd=folder, check=True, timeout=60)
    return folder / "run"


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder; what Python compiles on its own does not count."""
    files = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"space": {"x": [1, 2]}}, "x was [1, 2, 3], is now [1, 2], without 3"),
        ({"space": {"x": {"low": 1, "high": 2, "steps": 2}}}, "x was [1, 2, 3], is now [1, 2], without 3"),
        ({"space": {"x": [1, 2, 3], "z": [0]}}, "z was [null], is now [0], without null"),
        ({"fixed": {"y": 6}}, "y was [5], is now [6], without 5"),
        ({"fixed": {}}, "y was [5], is now [null], without 5"),
        ({"fixed": {"y": 5, "z": 1}}, "z was [null], is now [1], without null"),
        ({"where": ["x < 3", "x > 1"]}, "where has a new condition 'x > 1'"),
        ({"repeats": 1}, "repeats was 2, is now 1"),
        ({"seed": 1}, "seed was 0, is now 1"),
        ({"data_seed": 1}, "data_seed was 0, is now 1"),
        ({"purpose": "time"}, 'purpose was "tune", is now "time"'),
        ({"workload": "finished_work:g"}, 'workload was "finished_work:f", is now "finished_work:g"'),
        ({"data": {"source": "other"}}, 'data was {}, is now {"source": "other"}'),
        ({"stop": {"max_epochs": 10}}, 'stop was {"max_epochs": 9}, is now {"max_epochs": 10}'),
        ({"search": {"method": "random"}}, 'search was {}, is now {"method": "random"}'),
    ],
)
def test_any_other_change_is_refused_with_the_difference_named(
    finished: Path, change: dict[str, Any], difference: str
) -> None:
    before = tree(finished)
    changed = finished.parent / "changed.json"
    changed.write_text(json.dumps(BASE | change))
    with pytest.raises(StudyError) as refused:
        run_study(changed, finished, engine="serial")
    assert str(refused.value) == (
        f"{finished} holds another study: {difference}; choose another --out, or --fresh to start anew"
    )
    assert tree(finished) == before


def test_a_refused_change_is_one_line_and_exit_code_2(cli: Cli, finished: Path) -> None:
    answer = cli("run", finished.parent / "study.json", "--out", finished, "--set", "seed=1")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith(f"tradewind: {finished} holds another study: seed was 0, is now 1; ")
    assert answer.stderr.count("\n") == 1


def test_a_study_that_has_ended_runs_nothing_again(command: Cli, finished: Path) -> None:
    calls = finished.parent / "calls.txt"
    before = calls.read_text()
    answer = command("run", finished.parent / "study.json", "--out", finished)
    assert answer.returncode == 0
    assert answer.stdout.startswith("4 done\n")
    assert calls.read_text() == before


def test_fresh_starts_anew_and_keeps_the_old_run_aside(command: Cli, write_study: WriteStudy) -> None:
    path = write_study({"name": "s", "workload": "work:f", "space": {"x": [1]}}, WORK)
    assert command("run", path, "--out", "run", "--engine", "serial").returncode == 0
    old = done(path.parent / "run")
    assert command("run", path, "--out", "run", "--quiet", "--fresh", "--set", "space.x=[2]").returncode == 0
    assert [record["config"]["x"] for record in done(path.parent / "run")] == [2]
    aside = list(path.parent.glob("run.before-*"))
    assert len(aside) == 1
    assert done(aside[0]) == old


@pytest.mark.parametrize("place", ["space", "fixed"])
@pytest.mark.parametrize("name", ["seed", "data_seed"])
def test_the_seeds_can_not_be_hyperparameters(place: str, name: str) -> None:
    value = [1] if place == "space" else 1
    with pytest.raises(StudyError, match=rf"{place}.{name}: comes from the study's own `{name}`.*leave it out here"):
        Study(name="s", workload="work:f", **{place: {name: value}})


def test_hyperparameters_named_like_fields_of_a_record_do_not_hide_them(
    command: Cli, write_study: WriteStudy
) -> None:
    fields = {"state": "failed", "trial": 7, "finished": "no", "attempt": 3, "purpose": "time", "machine": "mine"}
    study = {"name": "s", "workload": "work:f", "space": {"x": [1, 2]}, "fixed": fields}
    path = write_study(study, WORK)
    for _ in range(2):
        assert command("run", path, "--out", "run", "--engine", "serial").returncode == 0
    assert path.with_name("calls.txt").read_text() == "1 0\n2 0\n"
    assert Results.load(path.parent / "run").counts() == {"done": 2, "pruned": 0, "stopped": 0, "failed": 0}
    assert json.loads(command("show", "run", 1, "--json").stdout)["config"] == {**fields, "x": 2}


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("fixed.flag=False", "fixed.flag=false"),
        ("fixed.flag=True", "fixed.flag=true"),
        ("fixed.flag= None", "fixed.flag=null"),
        ("space.flag=[True, False, None]", "space.flag=[true, false, null]"),
        ('fixed.flag={"a": True}', 'fixed.flag={"a": true}'),
    ],
)
def test_pythons_spelling_of_truth_is_refused_with_jsons(
    text: str, right: str, command: Cli, write_study: WriteStudy
) -> None:
    write_study({"name": "s", "workload": "work:f", "space": {"x": [1]}}, "def f(config):\n    return 1.0\n")
    refused = command("check", "study.json", "--set", text)
    assert refused.returncode == 2
    said = f"tradewind: --set {text}: found Python's spelling; allowed: JSON's; write --set {right}"
    assert refused.stderr.splitlines() == [said]
    for kept in ("name=True story", "description=None of these", 'fixed.flag="False"'):
        assert "spelling" not in command("check", "study.json", "--set", kept).stderr


def test_the_command_to_repeat_a_trial_has_what_was_set_and_what_a_choice_brought(
    command: Cli, write_study: WriteStudy
) -> None:
    optimizers = ["adam", {"value": "sgd", "space": {"momentum": [0.5, 0.9]}}]
    content = {
        "name": "s", "workload": "work:f", "space": {"optimizer": optimizers}, "fixed": {"scale": 1},
        "search": {"method": "random", "trials": 9},
    }  # fmt: skip
    write_study(content, "def f(config):\n    return config['scale'] + (config['momentum'] or 0) + config['seed']\n")
    command("run", "study.json", "--out", "run", "--set", "fixed.scale=100", "--set", "seed=7", "--engine", "serial")
    records = list(Results.load("run").records())
    assert [record["scores"]["score"] for record in records] == [107.0, 107.5, 107.9]
    for record in records:
        again = shlex.split(command("show", "run", record["trial"]).stdout.splitlines()[-1].partition(": ")[2])
        assert again[:2] == ["tradewind", "run"]
        command(*again[1:])
        (repeated,) = Results.load(f"again-{record['trial']}").records()
        assert (repeated["key"], repeated["scores"]) == (record["key"], record["scores"])


def test_null_in_a_dimension_that_is_extended_leaves_each_trial_once(command: Cli, write_study: WriteStudy) -> None:
    content = {"name": "s", "workload": "work:f", "space": {"a": [None, 1], "b": [1]}}
    code = "def f(config):\n    return (config['a'] or 0) + 10 * config['b']\n"
    write_study(content, code)
    command("run", "study.json", "--out", "run", "--engine", "serial", "--quiet")
    content["space"] = {"a": [1, None], "b": [2, 1]}
    write_study(content, code)
    command("run", "study.json", "--out", "run", "--engine", "serial", "--quiet")
    found = [(r["trial"], r["scores"]["score"]) for r in Results.load("run").records()]
    assert found == [(0, 21.0), (1, 11.0), (2, 20.0), (3, 10.0)]
