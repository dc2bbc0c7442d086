"""The safe expression language of `where`: parsed by `ast`, held against a whitelist, never run as code."""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from tradewind.errors import StudyError, nearest
from tradewind.pack import Value

MAX_LENGTH = 1000
MAX_DEPTH = 100
ALLOWED = (
    "names without a leading _, numbers, strings, true, false, "
    "+ - * / // % **, == != < <= > >=, in [...], not in [...], and, or, not, parentheses"
)

_Run = Callable[[Mapping[str, Value]], Value]
Test = Callable[[Mapping[str, Value]], bool]
_NUMBERS = frozenset({int, float})


class _Term(NamedTuple):
    """A part of a condition, ready to run; a kind of "any" is known only when it runs."""

    kind: str  # number, text, truth, list, any
    run: _Run
    fixed: bool = False  # holds no names


class Condition:
    """One condition of `where`: true or false for a config, or a StudyError."""

    __slots__ = ("_test", "_title", "names", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._title = f"where {_shown(text, 100)}"
        try:
            tree = _parse(text)
            self._test = _truth(_term(tree))
        except (SyntaxError, RecursionError, MemoryError) as fault:
            message = getattr(fault, "msg", "nested too deeply")
            raise StudyError(f"{self._title}: {message}; allowed: {ALLOWED}") from None
        except (StudyError, TypeError, ArithmeticError, ValueError) as fault:
            raise StudyError(f"{self._title}: {fault}") from None
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        self.names = frozenset(names - {"true", "false"})

    def __call__(self, config: Mapping[str, Value]) -> bool:
        """Whether the condition holds for this config."""
        try:
            return self._test(config)
        except KeyError as fault:
            message = f"there is no {fault.args[0]!r}; {nearest(str(fault.args[0]), config)}"
        except (TypeError, ArithmeticError, ValueError) as fault:
            message = str(fault)
        values = [f"{name} = {_shown(config[name])}" for name in sorted(self.names) if name in config]
        raise StudyError(f"{self._title}: {message}" + (f" (with {', '.join(values)})" if values else ""))


def _shown(value: Value, width: int = 60) -> str:
    """A value in one line of at most about `width` characters."""
    text = repr(value[: width + 1] if isinstance(value, str) else value)
    return text if len(text) <= width + 2 else text[:width] + "..."


def _parse(text: str) -> ast.expr:
    """The tree of a condition, not yet held against the whitelist."""
    if len(text) > MAX_LENGTH:
        raise StudyError(f"it has {len(text)} characters, at most {MAX_LENGTH} are allowed")
    if not text.strip():
        raise StudyError(f"it is empty; allowed: {ALLOWED}")
    with warnings.catch_warnings():
        # What one Python only warns of, such as "\d", another refuses: the same answer from all.
        warnings.simplefilter("error")
        return ast.parse(text.strip(), mode="eval").body


def _term(node: ast.expr, depth: int = 0) -> _Term:
    """Turn a tree into closures; whatever is not on the whitelist is refused."""
    if depth > MAX_DEPTH:
        raise StudyError(f"nested more than {MAX_DEPTH} deep")
    match node:
        case ast.Name(id="true" | "false" as word):
            return _constant(word == "true")
        case ast.Name(id=name) if not name.startswith("_"):
            return _Term("any", operator.itemgetter(name))
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return _constant(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            test = _truth(_term(operand, depth + 1))
            return _Term("truth", lambda config: not test(config))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            factor = -1 if isinstance(sign, ast.USub) else 1
            return _arithmetic(operator.mul, _constant(factor), _term(operand, depth + 1))
        case ast.BinOp(left=left, op=symbol, right=right) if type(symbol) in _ARITHMETIC:
            return _arithmetic(_ARITHMETIC[type(symbol)], _term(left, depth + 1), _term(right, depth + 1))
        case ast.BoolOp(op=word, values=parts):
            tests = tuple(_truth(_term(part, depth + 1)) for part in parts)
            return _Term("truth", joined(tests, decisive=isinstance(word, ast.Or)))
        case ast.Compare():
            return _Term("truth", _comparison(node, depth + 1))
    raise StudyError(f"found {_shown(ast.unparse(node))}; allowed: {ALLOWED}")


def _constant(value: bool | int | float | str) -> _Term:
    kind = "truth" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
    return _Term(kind, lambda config: value, fixed=True)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _arithmetic(operation: Callable[[Value, Value], Value], left: _Term, right: _Term) -> _Term:
    """Arithmetic takes numbers only: text could be repeated without end."""
    if {left.kind, right.kind} & {"text", "truth"}:
        raise StudyError(f"arithmetic needs numbers; allowed: {ALLOWED}")
    first, second = left.run, right.run

    def run(config: Mapping[str, Value]) -> Value:
        a, b = first(config), second(config)
        if (type(a) in _NUMBERS or _is_number(a)) and (type(b) in _NUMBERS or _is_number(b)):
            return operation(a, b)
        raise TypeError(f"arithmetic needs numbers, not {_shown(b if _is_number(a) else a)}")

    # Worked out now, so that 9**9**9 or 1/0 is found before any trial
    return _constant(run({})) if left.fixed and right.fixed else _Term("number", run)


def _power(a: float, b: float) -> float:
    """A power in floats: in integers 9**9**9 would take all memory."""
    try:
        return math.pow(a, b)
    except (OverflowError, ValueError):  # too large, or the root of a negative number
        raise ArithmeticError(f"no number for {_shown(a)} ** {_shown(b)}") from None


def _truth(term: _Term) -> Test:
    """The test that a term makes; only true and false count, so that a forgotten `== 1` is found."""
    run = term.run
    if term.kind == "truth":
        return run
    if term.kind != "any":
        raise StudyError(f"needs true or false where it has a {term.kind}; compare it with something")

    def test(config: Mapping[str, Value]) -> bool:
        value = run(config)
        if isinstance(value, bool):
            return value
        raise TypeError(f"needs true or false, not {_shown(value)}; compare it with something")

    return test


def joined(tests: tuple[Test, ...], decisive: bool) -> Test:
    """`and` ends at the first false, `or` at the first true."""

    def test(config: Mapping[str, Value]) -> bool:
        for part in tests:
            if part(config) is decisive:
                return decisive
        return not decisive

    return test


def _comparison(node: ast.Compare, depth: int) -> Test:
    """A comparison or a chain of them; each part runs once, or nested chains would take 2**depth steps."""
    terms = [_term(node.left, depth)]
    for symbol, right in zip(node.ops, node.comparators, strict=True):
        if type(symbol) not in _COMPARE:
            raise StudyError(f"found `is`; allowed: {ALLOWED}")
        terms.append(_list(right, depth) if isinstance(symbol, ast.In | ast.NotIn) else _term(right, depth))
    compare, first, second = _COMPARE[type(node.ops[0])], terms[0].run, terms[1].run
    if len(terms) == 2 and terms[1].fixed:  # the most frequent kind saves a call
        limit = second({})
        return lambda config: compare(first(config), limit)
    if len(terms) == 2:
        return lambda config: compare(first(config), second(config))
    rest = [(_COMPARE[type(symbol)], term.run) for symbol, term in zip(node.ops, terms[1:], strict=True)]

    def test(config: Mapping[str, Value]) -> bool:
        a = first(config)
        for compare, run in rest:
            b = run(config)
            if not compare(a, b):
                return False
            a = b
        return True

    return test


def _list(node: ast.expr, depth: int) -> _Term:
    """The literal list after `in`."""
    if not isinstance(node, ast.List):
        raise StudyError(f"`in` must be followed by a list such as [1, 2]; allowed: {ALLOWED}")
    # Brackets need no depth of their own: the parser takes at most 200
    terms = [_list(part, depth) if isinstance(part, ast.List) else _term(part, depth) for part in node.elts]
    if not all(term.fixed for term in terms):
        raise StudyError(f"found {_shown(ast.unparse(node))} after `in`; allowed: a list of values")
    values = [term.run({}) for term in terms]
    return _Term("list", lambda config: values, fixed=True)


def _same(a: Value, b: Value) -> bool:
    """Equality of JSON values: 1 is 1.0 but not true."""
    return bool(a == b) and (type(a) is bool) == (type(b) is bool)


def _by_size(operation: Callable[[Value, Value], bool]) -> Callable[[Value, Value], bool]:
    """A comparison of two numbers or two texts."""

    def compare(a: Value, b: Value) -> bool:
        if type(a) in _NUMBERS and type(b) in _NUMBERS:
            return operation(a, b)
        if (_is_number(a) and _is_number(b)) or (isinstance(a, str) and isinstance(b, str)):
            return bool(operation(a, b))  # numpy's numbers answer with a bool of their own
        raise TypeError(f"can't compare {_shown(a)} with {_shown(b)} by size")

    return compare


_ARITHMETIC: dict[type[ast.operator], Callable[[Value, Value], Value]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Value, Value], bool]] = {
    ast.Lt: _by_size(operator.lt),
    ast.LtE: _by_size(operator.le),
    ast.Gt: _by_size(operator.gt),
    ast.GtE: _by_size(operator.ge),
    ast.Eq: _same,
    ast.NotEq: lambda a, b: not _same(a, b),
    ast.In: lambda a, values: any(map(partial(_same, a), values)),
    ast.NotIn: lambda a, values: not any(map(partial(_same, a), values)),
}
