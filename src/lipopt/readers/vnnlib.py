"""VNN-LIB files, versions 1.0 and 2.0: the boxes that a file's conditions leave to the inputs.

A file asserts a formula of `and`, `or` and comparisons over the inputs and outputs of a network.
The inputs that can satisfy it are enclosed in a union of boxes:

    a comparison in one input, linear    a bound on that input, rounded outward to a float
    any other comparison                 no restriction: it may hold anywhere
    and, or                              intersections and unions of boxes

So what is not understood as a bound makes the domain larger, never smaller, and no part of a
disjunction is lost. Strict inequalities are read as if they were not strict.

The parser is our own because the package vnnlib 1.0 reads version 2.0 alone, and takes the whole
process down on a file that is nested too deeply.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from math import inf, isinf, nextafter, prod
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from ..errors import DAMAGED, LipoptError, require_file
from ..model.domain import Box, Boxes

DEEPEST = 200  # parentheses within parentheses
MOST_BOXES = 1_000_000  # when disjunctions are multiplied out
LONGEST_NUMBER = 1000  # characters of a number, and the size of its exponent

Expression: TypeAlias = "str | list[Expression]"
Limits: TypeAlias = dict[int, tuple[float, float]]  # by input; those that are not there have none

_TOKEN = re.compile(r';[^\n]*|"(?:[^"\\]|\\.)*"|\[[^\[\]]*\]|[()]|[^\s()\[\]";]+|\S')
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INPUT = re.compile(r"X_(0|[1-9][0-9]*)")
_MIRRORED = {"<=": ">=", "<": ">", ">=": "<=", ">": "<", "=": "=", "==": "==", "!=": "!="}
_DECLARATIONS = {"declare-const", "declare-fun", "declare-network", "vnnlib-version"}
_WITHOUT_MEANING = {"set-logic", "set-info", "set-option", "check-sat", "get-model", "exit"}
_COMMANDS = {"assert"} | _DECLARATIONS | _WITHOUT_MEANING
_TENSORS = ("declare-input", "declare-hidden", "declare-output")


def read_vnnlib(path: str | Path) -> Box | Boxes:
    """The inputs that a VNN-LIB file is about: a box, or a union of boxes if it has disjunctions.

    Conditions on outputs, and those on several inputs at once, are not used: the domain is then
    larger than the set of inputs that satisfy the file."""
    path = Path(path)
    require_file(path)
    try:
        commands = _commands(_text(path))
        _check_version(commands)
        names = _declared(commands)
        conditions = [_condition(command) for command in commands if command[0] == "assert"]
        union = _intersections(_union(condition, names) for condition in conditions)
        boxes = [_box(limits, names) for limits in union]
        if not boxes:
            raise LipoptError("its conditions exclude all inputs: every box is empty")
    except LipoptError as error:
        raise LipoptError(f"{path}: {error}") from error
    return boxes[0] if len(boxes) == 1 else Boxes(tuple(boxes))


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        return content.decode("utf-8")
    except DAMAGED as error:
        raise LipoptError(f"cannot be read: {error}") from error


def _commands(text: str) -> list[list[Expression]]:
    """The expressions in parentheses, as nested lists of words; indices are part of their word."""
    open_: list[list[Expression]] = [[]]
    for token in _TOKEN.findall(text):
        innermost = open_[-1]
        if token == "(":
            open_.append([])
            if len(open_) > DEEPEST:
                raise LipoptError(f"its parentheses are nested deeper than {DEEPEST}")
        elif token == ")" and len(open_) > 1:
            open_.pop()
            open_[-1].append(innermost)
        elif token[0] == "[" and len(token) > 1 and innermost and isinstance(innermost[-1], str):
            innermost[-1] += "".join(token.split())
        elif token[0] != ";" and token not in (")", "[", "]", '"'):
            innermost.append(token)
        elif token[0] != ";":
            raise LipoptError(f"not a VNN-LIB file: there is a '{token}' that belongs to nothing")
    if len(open_) > 1:
        raise LipoptError("not a VNN-LIB file: a parenthesis is not closed")
    commands: list[list[Expression]] = []
    for command in open_[0]:
        if not isinstance(command, list) or not command or not isinstance(command[0], str):
            raise LipoptError("not a VNN-LIB file: it holds more than commands in parentheses")
        commands.append(command)
    return commands


def _check_version(commands: Sequence[list[Expression]]) -> None:
    for command in commands:
        if command[0] == "vnnlib-version":
            version = _word(command, 1)
            if not re.fullmatch(r"<[12]\.[0-9]+>", version):
                raise LipoptError(f"its version is {version}; this program reads <1.0> and <2.0>")


def _word(command: Sequence[Expression], position: int) -> str:
    """A word that must be there."""
    word = command[position] if position < len(command) else []
    if not isinstance(word, str):
        raise LipoptError(f"'{command[0]}' lacks a word")
    return word


def _condition(command: list[Expression]) -> Expression:
    if len(command) != 2:
        raise LipoptError("an 'assert' holds one condition")
    return command[1]


# What is declared


class _Names(Protocol):
    """The declared variables."""

    @property
    def count(self) -> int:
        """The number of inputs."""

    def place(self, word: str) -> int | None:
        """The number of an input; None for other variables."""

    def name(self, place: int) -> str:
        """The name of an input."""


def _declared(commands: Sequence[list[Expression]]) -> _Names:
    scalars = [command for command in commands if command[0] in ("declare-const", "declare-fun")]
    networks = [command for command in commands if command[0] == "declare-network"]
    for command in commands:
        if command[0] not in _COMMANDS:
            raise LipoptError(f"the command '{command[0]}' is not known")
    if scalars and networks:
        raise LipoptError("it declares variables both as in version 1.0 and as in version 2.0")
    if len(networks) > 1:
        raise LipoptError(
            f"it declares {len(networks)} networks, and a bound is about one; write the conditions "
            "on the input of that one to a file of their own, or give its box (--box)"
        )
    return _tensors(networks[0]) if networks else _scalars(scalars)


@dataclass(frozen=True)
class _Scalars:
    """Version 1.0: inputs X_0, X_1, ..., and other variables of any name."""

    count: int
    others: frozenset[str]

    def place(self, word: str) -> int | None:
        match = _INPUT.fullmatch(word)
        if match is not None and len(match[1]) < 19 and int(match[1]) < self.count:
            return int(match[1])
        if word not in self.others:
            raise LipoptError(f"'{word}' is neither a number nor a declared variable")
        return None

    def name(self, place: int) -> str:
        return f"X_{place}"


def _scalars(commands: Sequence[list[Expression]]) -> _Scalars:
    words = [_word(command, 1) for command in commands]
    if len(set(words)) < len(words):
        raise LipoptError("it declares a variable twice")
    inputs = {word for word in words if _INPUT.fullmatch(word)}
    if not inputs:
        raise LipoptError("it declares no input: no X_0, X_1, ..., and no network with one")
    if inputs != {f"X_{place}" for place in range(len(inputs))}:
        raise LipoptError(f"its {len(inputs)} inputs are not X_0 to X_{len(inputs) - 1}")
    return _Scalars(len(inputs), frozenset(words) - inputs)


@dataclass(frozen=True)
class _Tensors:
    """Version 2.0: tensors, one of them the input, whose entries have names such as X[0,2]."""

    input: str
    shapes: Mapping[str, tuple[int, ...]]
    known: dict[str, int | None] = field(default_factory=dict)  # places of words that were met

    @property
    def count(self) -> int:
        return prod(self.shapes[self.input])

    def place(self, word: str) -> int | None:
        if word not in self.known:
            self.known[word] = self._find(word)
        return self.known[word]

    def _find(self, word: str) -> int | None:
        tensor, _, rest = word.partition("[")
        if tensor not in self.shapes:
            raise LipoptError(f"'{word}' is neither a number nor an entry of a declared tensor")
        shape = self.shapes[tensor]
        indices = _integers(rest, word)
        if len(indices) != len(shape) or any(i >= n for i, n in zip(indices, shape, strict=False)):
            raise LipoptError(f"{word} is not an entry of {tensor}, whose shape is {list(shape)}")
        flat = 0
        for index, size in zip(indices, shape, strict=True):
            flat = flat * size + index
        return flat if tensor == self.input else None

    def name(self, place: int) -> str:
        indices: list[str] = []
        for size in reversed(self.shapes[self.input]):
            place, index = divmod(place, size)
            indices.append(str(index))
        return f"{self.input}[{','.join(reversed(indices))}]" if indices else self.input


def _tensors(network: list[Expression]) -> _Tensors:
    shapes: dict[str, tuple[int, ...]] = {}
    inputs: list[str] = []
    for part in network[2:]:
        kind = part[0] if isinstance(part, list) and part else "nothing"
        if not isinstance(part, list) or kind not in _TENSORS:
            raise LipoptError("the network has a part that declares no tensor")
        tensor = _word(part, 1)
        if tensor in shapes:
            raise LipoptError(f"it declares the tensor '{tensor}' twice")
        shapes[tensor] = _integers(_word(part, 2).partition("[")[2], _word(part, 2))
        if kind == "declare-input":
            inputs.append(tensor)
            if "initialized" in part:
                raise LipoptError(f"input '{tensor}' has its value from the network; use --box")
    if len(inputs) != 1:
        raise LipoptError(
            f"the network has {len(inputs)} inputs, and lipopt reads networks with one; "
            "join them in the network, and give the box of all of them (--box)"
        )
    if prod(shapes[inputs[0]]) == 0:
        raise LipoptError(f"the input '{inputs[0]}' is empty")
    return _Tensors(inputs[0], shapes)


def _integers(text: str, word: str) -> tuple[int, ...]:
    """The numbers of `1,5]`, which follow the bracket of a word, if it has one."""
    entries = [entry for entry in text.removesuffix("]").split(",") if text.removesuffix("]")]
    if not all(re.fullmatch("[0-9]{1,18}", entry) for entry in entries):
        raise LipoptError(f"{word} has indices or sizes that are not whole numbers")
    return tuple(int(entry) for entry in entries)


# From conditions to boxes


def _union(condition: Expression, names: _Names) -> list[Limits]:
    """Boxes that together hold all inputs for which the condition can be true."""
    if not isinstance(condition, list) or not condition or not isinstance(condition[0], str):
        raise LipoptError(f"a condition is missing where {condition!r} stands")
    operator = condition[0]
    if operator == "and":
        return _intersections(_union(part, names) for part in condition[1:])
    if operator == "or":
        return _distinct(limits for part in condition[1:] for limits in _union(part, names))
    if operator not in _MIRRORED or len(condition) != 3:
        raise LipoptError(f"cannot use a condition '{operator}' of {len(condition) - 1} parts")
    return _comparison(operator, condition[1], condition[2], names)


def _distinct(boxes: Iterable[Limits]) -> list[Limits]:
    """Every box once; one without limits holds all others."""
    kept = {frozenset(limits.items()): limits for limits in boxes}
    return [{}] if frozenset() in kept else list(kept.values())


def _intersections(unions: Iterable[list[Limits]]) -> list[Limits]:
    """The intersection of unions of boxes, without the boxes that are empty."""
    common: Limits = {}
    several: list[list[Limits]] = []
    for union in unions:
        if len(union) > 1:
            several.append(union)
        elif not union or not _narrow(common, union[0]):
            return []
    result = [common]
    for union in several:
        if len(result) * len(union) > MOST_BOXES:
            raise LipoptError(
                f"its disjunctions multiply to more than {MOST_BOXES:,} boxes; "
                "write them as one disjunction of boxes, and with fewer of them"
            )
        products: list[Limits] = []
        for first in result:
            for second in union:
                both = dict(first)
                if _narrow(both, second):
                    products.append(both)
        result = _distinct(products)
    return result


def _narrow(limits: Limits, other: Limits) -> bool:
    """Cut a box down to its intersection with another; False if that is empty."""
    for place, (low, high) in other.items():
        lower, upper = limits.get(place, (-inf, inf))
        limits[place] = max(low, lower), min(high, upper)
        if limits[place][0] > limits[place][1]:
            return False
    return True


def _comparison(operator: str, left: Expression, right: Expression, names: _Names) -> list[Limits]:
    """`left operator right`, as a bound if it is linear in one input alone."""
    first = _linear(left, names)
    second = _linear(right, names)
    if first is None or second is None or operator == "!=":
        return [{}]
    difference = first.plus(second, Fraction(-1))
    slopes = [(place, slope) for place, slope in difference.slopes.items() if slope]
    if not slopes:
        return [{}] if _holds(operator, difference.constant) else []
    if len(slopes) > 1:
        return [{}]
    place, slope = slopes[0]
    number = -difference.constant / slope
    relation = operator if slope > 0 else _MIRRORED[operator]
    lower = -inf if relation in ("<=", "<") else _down(number)
    upper = inf if relation in (">=", ">") else 0.0 - _down(-number)
    return [{place: (lower, upper)}]


def _holds(operator: str, number: Fraction) -> bool:
    """Whether the number compares so with zero."""
    if operator in ("<=", "<"):
        return number <= 0
    if operator in (">=", ">"):
        return number >= 0
    return number == 0


def _down(number: Fraction) -> float:
    """The largest float that does not exceed a number."""
    try:
        nearest = float(number)
    except OverflowError:
        nearest = inf if number > 0 else -inf
    if isinf(nearest):
        return nextafter(inf, 0.0) if number > 0 else -inf
    return nearest if Fraction(nearest) <= number else nextafter(nearest, -inf)


@dataclass(frozen=True)
class _Linear:
    """A linear function of the inputs."""

    slopes: Mapping[int, Fraction]
    constant: Fraction

    def times(self, factor: Fraction) -> _Linear:
        slopes = {place: factor * slope for place, slope in self.slopes.items()}
        return _Linear(slopes, factor * self.constant)

    def plus(self, other: _Linear, factor: Fraction) -> _Linear:
        slopes = dict(self.slopes)
        for place, slope in other.slopes.items():
            slopes[place] = slopes.get(place, Fraction(0)) + factor * slope
        return _Linear(slopes, self.constant + factor * other.constant)


def _linear(expression: Expression, names: _Names) -> _Linear | None:
    """An arithmetic expression; None if it is not linear, or depends on more than the inputs."""
    if isinstance(expression, str):
        if _NUMBER.fullmatch(expression):
            return _Linear({}, _number(expression))
        place = names.place(expression)
        return None if place is None else _Linear({place: Fraction(1)}, Fraction(0))
    operator = expression[0] if expression else ""
    if operator not in ("+", "-", "*") or len(expression) < 2:
        raise LipoptError(f"cannot use the operation '{operator}' in a condition")
    parts = [_linear(part, names) for part in expression[1:]]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return _product(known) if operator == "*" else _sum(known, operator)


def _sum(parts: Sequence[_Linear], operator: str) -> _Linear:
    sign = Fraction(1 if operator == "+" else -1)
    if len(parts) == 1:
        return parts[0].times(sign)
    total = parts[0]
    for part in parts[1:]:
        total = total.plus(part, sign)
    return total


def _product(parts: Sequence[_Linear]) -> _Linear | None:
    result = parts[0]
    for part in parts[1:]:
        if result.slopes and part.slopes:
            return None
        result = part.times(result.constant) if part.slopes else result.times(part.constant)
    return result


def _number(word: str) -> Fraction:
    """A decimal number, exactly."""
    exponent = word.lower().partition("e")[2] or "0"
    if len(word) > LONGEST_NUMBER or len(exponent) > 5 or abs(int(exponent)) > LONGEST_NUMBER:
        raise LipoptError(f"the number {word[:20]}... is too long, or its exponent too large")
    return Fraction(Decimal(word))


def _box(limits: Limits, names: _Names) -> Box:
    """A box with limits on both sides of every input."""
    for place in range(names.count):  # which ends soon after the last input that has limits
        if any(isinf(end) for end in limits.get(place, (-inf, inf))):
            raise LipoptError(
                f"input {names.name(place)} is not bounded on both sides, in every part of "
                "a disjunction; add the bounds that are missing"
            )
    lower, upper = np.array([limits[place] for place in range(names.count)]).T
    return Box(lower, upper)
