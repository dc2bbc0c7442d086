"""The expression language of `where`: what it says, what it refuses, what it costs."""

from __future__ import annotations

import time
import timeit
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from tradewind.errors import StudyError
from tradewind.where import ALLOWED, MAX_LENGTH, Condition

CONFIG: dict[str, Any] = {
    "batch_size": 128,
    "devices": 4,
    "learning_rate": 0.01,
    "augment": "pre",
    "nesterov": True,
    "layers": [64, 32],
    "momentum": None,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch_size / devices <= 32", True),
        ("batch_size / devices < 32", False),
        ("batch_size // 100 == 1 and batch_size % 100 == 28", True),
        ("devices ** 2 == 16", True),
        ("devices ** 0.5 == 2", True),
        ("-devices < -3 and +devices > 3", True),
        ("2 + 3 * 4 == 14 and (2 + 3) * 4 == 20", True),
        ("1 < devices < 5 <= batch_size", True),
        ("1 < devices < 4", False),
        ("devices in [1, 2, 4]", True),
        ("devices not in [1, 2, 4]", False),
        ("devices in []", False),
        ("devices in [1, 2 * 2]", True),
        ("augment in ['pre', 'live']", True),
        ("layers in [[64], [64, 32]]", True),
        ("augment == 'pre' or learning_rate > 1", True),
        ("not augment == 'pre'", False),
        ("augment < 'q'", True),
        ("augment == 3", False),
        ("nesterov", True),
        ("not nesterov", False),
        ("nesterov == true and nesterov != false", True),
        ("nesterov == True", True),
        ("nesterov == 1", False),
        ("nesterov in [1]", False),
        ("momentum == 0", False),
        ("1e999 > batch_size", True),
        ("  devices == 4  ", True),
        ("false and 1 / batch_size > 0", False),
        ("devices == 4 or batch_size < augment", True),
    ],
)
def test_a_condition_says_what_it_reads_like(text: str, expected: bool) -> None:
    assert Condition(text)(CONFIG) is expected


def test_a_condition_knows_its_text_and_its_names() -> None:
    condition = Condition("batch_size / devices <= 32 and true")
    assert condition.text == "batch_size / devices <= 32 and true"
    assert condition.names == frozenset({"batch_size", "devices"})


NASTY = [
    "__import__('os').system('true')",
    "().__class__",
    "().__class__.__bases__[0].__subclasses__()",
    "9**9**9**9",
    "batch_size < 9**9**9",
    "(" * 10_000 + "1" + ")" * 10_000,
    "(" * 400 + "1" + ")" * 400,
    "[" * 300 + "]" * 300,
    "-" * 900 + "1",
    "not " * 200 + "nesterov",
    "1+" * 400 + "1 > 0",
    '"a"*10**9',
    "'a' + 'b' == augment",
    "'%s' % augment == 'pre'",
    "true + 1 == 2",
    "lambda: 1",
    "",
    "   ",
    "\n",
    "a.b",
    "a[0]",
    "a[0:1]",
    "f(a)",
    "print('x')",
    "[x for x in a]",
    "{x for x in a}",
    "(x for x in a)",
    "{'a': 1}",
    "{1, 2}",
    "(1, 2)",
    "[1, 2]",
    "f'{a}'",
    "f'''{a}\n{b}'''",
    "(a := 1)",
    "a = 1",
    "a; b",
    "import os",
    "a if b else c",
    "~a",
    "a @ b",
    "a << 1",
    "a & b",
    "a | b",
    "a is b",
    "1 is 1",
    "a is not 1",
    "a in b",
    "a in 'abc'",
    "a in (1, 2)",
    "a in [b]",
    "a in [1, *b]",
    "*a",
    "await a",
    "yield",
    "_a == 1",
    "__builtins__ == 1",
    "None == a",
    "... == a",
    "1j == a",
    "b'x' == a",
    r'"\d" == a',
    "1if a else 2",
    "1 / 0 > a",
    "5 % 0 == a",
    "(-8) ** 0.5 == a",
    "0 ** -1 == a",
    "3",
    "'text'",
    "a and 3",
    "not 'text'",
    "a\0b",
    "\ud800",
    "a <",
    "a < 1)",
    "a && b",
    "'open",
]


@pytest.mark.parametrize("text", NASTY, ids=lambda text: ascii(text)[:40])
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    started = time.perf_counter()
    with pytest.raises(StudyError) as caught:
        Condition(text)
    assert time.perf_counter() - started < 1
    message = str(caught.value)
    assert message.startswith("where ")
    assert len(message.splitlines()) == 1
    assert len(message) < 600


def test_a_refusal_says_which_condition_what_was_found_and_what_is_allowed() -> None:
    with pytest.raises(StudyError) as caught:
        Condition("devices < f(2)")
    assert str(caught.value) == f"where 'devices < f(2)': found 'f(2)'; allowed: {ALLOWED}"


def test_the_length_of_a_condition_is_limited() -> None:
    fits = "a == 1".ljust(MAX_LENGTH)
    assert Condition(fits)({"a": 1})
    with pytest.raises(StudyError, match=f"it has {MAX_LENGTH + 1} characters, at most {MAX_LENGTH}"):
        Condition(fits + " ")


def test_nested_chains_take_no_exponential_time() -> None:
    text = "a"
    for _ in range(80):
        text = f"a==({text})==a"
    started = time.perf_counter()
    assert Condition(text)({"a": True})
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize(
    ("text", "config", "fault"),
    [
        ("a / b > 1", {"a": 1, "b": 0}, "division by zero (with a = 1, b = 0)"),
        ("a % b > 1", {"a": 1.5, "b": 0}, "float modulo (with a = 1.5, b = 0)"),
        ("a < b", {"a": "x", "b": 1}, "can't compare 'x' with 1 by size (with a = 'x', b = 1)"),
        ("a < 1", {"a": True}, "can't compare True with 1 by size (with a = True)"),
        ("a < 1", {"a": [1]}, "can't compare [1] with 1 by size (with a = [1])"),
        ("a < 1", {"a": None}, "can't compare None with 1 by size (with a = None)"),
        ("1 < 'x'", {}, "can't compare 1 with 'x' by size"),
        ("a + 1 > 1", {"a": True}, "arithmetic needs numbers, not True (with a = True)"),
        ("a * 3 == 'xxx'", {"a": "x"}, "arithmetic needs numbers, not 'x' (with a = 'x')"),
        ("3 * a == 1", {"a": [1]}, "arithmetic needs numbers, not [1] (with a = [1])"),
        ("-a < 1", {"a": "x"}, "arithmetic needs numbers, not 'x' (with a = 'x')"),
        ("a ** b > 0", {"a": 9, "b": 9**9}, "no number for 9 ** 387420489 (with a = 9, b = 387420489)"),
        ("a / 1 > 0", {"a": 10**400}, "integer division result too large for a float"),
        ("a", {"a": 3}, "needs true or false, not 3; compare it with something (with a = 3)"),
        ("a or b", {"a": False, "b": "x"}, "needs true or false, not 'x'; compare it with something"),
        ("bach < a", {"batch": 2, "a": 1}, "there is no 'bach'; did you mean 'batch'? allowed: a, batch"),
        ("a < 1", {"a": "y\n" * 99}, "can't compare 'y\\ny\\n"),
    ],
)
def test_a_fault_names_the_condition_and_the_values_involved(text: str, config: dict[str, Any], fault: str) -> None:
    with pytest.raises(StudyError) as caught:
        Condition(text)(config)
    message = str(caught.value)
    assert message.startswith(f"where {text!r}: ")
    assert fault in message
    assert len(message.splitlines()) == 1


@given(st.text(alphabet="ab01.'\"[](){}+-*/%<>=!&|~^@,:; \n\\_#innotadrft", max_size=30))
def test_whatever_is_written_gives_a_condition_or_a_study_error(text: str) -> None:
    try:
        answer = str(Condition(text)({"a": 1, "b": "x"}))
    except StudyError as error:
        answer = str(error)
    assert answer in ("True", "False") or answer.startswith("where ")
    assert len(answer.splitlines()) == 1


NUMBERS = st.sampled_from(["a", "b", "3", "0.5", "-2", "7"])
SUMS = st.recursive(
    NUMBERS,
    lambda part: st.builds("({} {} {})".format, part, st.sampled_from(["+", "-", "*", "/", "//", "%"]), part),
    max_leaves=5,
)
COMPARED = st.one_of(
    st.builds("{} {} {}".format, SUMS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), SUMS),
    st.builds("{} {} {} {} {}".format, SUMS, st.sampled_from("<>"), SUMS, st.sampled_from("<>"), SUMS),
    st.builds("{} {} [1, 2, 3]".format, SUMS, st.sampled_from(["in", "not in"])),
)
TESTS = st.recursive(
    COMPARED,
    lambda part: st.one_of(
        st.builds("({} {} {})".format, part, st.sampled_from(["and", "or"]), part),
        st.builds("(not {})".format, part),
    ),
    max_leaves=4,
)


@given(TESTS, st.integers(-5, 5), st.floats(-5, 5))
def test_a_condition_agrees_with_python(text: str, a: int, b: float) -> None:
    try:
        condition = Condition(text)
    except StudyError:
        reject()  # such as 1 // (3 - 3): a fault here even where Python would not come to it
    try:
        expected = eval(text, {}, {"a": a, "b": b})
    except ZeroDivisionError:
        with pytest.raises(StudyError, match=r"zero|modulo"):
            condition({"a": a, "b": b})
    else:
        assert condition({"a": a, "b": b}) is expected


def test_a_simple_comparison_takes_about_a_microsecond() -> None:
    condition = Condition("batch_size <= 256")
    taken_s = min(timeit.repeat(lambda: condition(CONFIG), number=1000, repeat=20)) / 1000
    assert taken_s < 2e-6
