"""The certificate file: text to data, checked for form alone. Section 2 and 4 of spec/certificate.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn, TypeAlias

from .exact import power
from .failures import LimitExceeded, Malformed
from .network import read_bytes

MOST_BYTES = 2**30
LARGEST_EXPONENT = 5_000
LARGEST_SET = 20
INTEGERS = re.compile(rb"(0|-?[1-9][0-9]{0,3999})( (0|-?[1-9][0-9]{0,3999}))*")


@dataclass(frozen=True)
class Factor:
    """Row i of L holds rows[i] in columns first[i], ..., i, times 2^exponent; `scale` are the exponents of D."""

    scale: list[int]
    exponent: int
    first: list[int]
    rows: list[list[int]]


@dataclass(frozen=True)
class PathSum:
    pass


@dataclass(frozen=True)
class Product:
    norms: dict[tuple[int, int], tuple[Fraction, Factor]]  # by node and number of the source


@dataclass(frozen=True)
class Products:
    exponent: int
    sets: list[tuple[list[int], list[int]]]  # variables, multipliers


@dataclass(frozen=True)
class Sdp:
    mu: list[Fraction]
    delta: list[Fraction]
    tau: list[Fraction]
    factor: Factor


Rule: TypeAlias = PathSum | Product | Products | Sdp
Functional: TypeAlias = dict[int, Fraction]


@dataclass(frozen=True)
class Part:
    row: int | None  # None: all
    inputs: list[int] | None
    neurons: list[tuple[int, bool, list[int]]]  # node, whether they are centered, places
    terms: list[tuple[Functional | None, Rule]]  # None: what the others leave


@dataclass(frozen=True)
class Certificate:
    network: str
    norm: str
    outputs: list[Functional]
    box: tuple[list[Fraction], list[Fraction]] | None
    bound: Fraction
    relaxations: dict[int, tuple[list[Fraction], list[Fraction]]]
    parts: list[Part]


class Lines:
    """The lines of a file, taken one by one."""

    def __init__(self, data: bytes) -> None:
        self.lines = data.split(b"\n")
        self.position = 0
        if self.lines.pop() != b"":
            self.fail("the last line has no end")

    def fail(self, reason: str) -> NoReturn:
        raise Malformed(f"certificate, line {max(self.position, 1)}: {reason}")

    def next_is(self, start: bytes) -> bool:
        return self.position < len(self.lines) and self.lines[self.position].startswith(start)

    def rest(self, keyword: str) -> bytes:
        """What follows the keyword on the next line."""
        if self.position == len(self.lines):
            self.fail(f"the file ends where '{keyword}' should stand")
        line = self.lines[self.position]
        self.position += 1
        found, _, rest = line.partition(b" ")
        if found != keyword.encode():
            self.fail(f"expected '{keyword}'")
        return rest

    def word(self, keyword: str, choices: Sequence[str]) -> str:
        rest = self.rest(keyword)
        for choice in choices:
            if rest == choice.encode():
                return choice
        self.fail(f"'{keyword}' is one of {', '.join(choices)}")

    def integers(self, keyword: str, length: int | None = None) -> list[int]:
        rest = self.rest(keyword)
        if not INTEGERS.fullmatch(rest):
            self.fail(f"'{keyword}' is followed by integers")
        values = [int(token) for token in rest.split(b" ")]
        if length is not None and len(values) != length:
            self.fail(f"'{keyword}' is followed by {length} integers, here by {len(values)}")
        return values

    def count(self, keyword: str) -> int:
        (value,) = self.integers(keyword, 1)
        if value < 0 or value > len(self.lines) - self.position:
            self.fail(f"the count {value} does not fit the rest of the file")
        return value

    def exponent(self, value: int) -> int:
        if abs(value) > LARGEST_EXPONENT:
            raise LimitExceeded(f"line {self.position}: the exponent {value} is larger than {LARGEST_EXPONENT}")
        return value

    def numbers(self, keyword: str, length: int | None = None) -> list[Fraction]:
        """Integers after their common exponent."""
        exponent, *values = self.integers(keyword, None if length is None else length + 1)
        unit = power(self.exponent(exponent))
        return [n * unit for n in values]

    def pairs(self, keyword: str) -> Functional:
        """Ascending indices with their coefficients, after an exponent and a count."""
        values = self.integers(keyword)
        if len(values) < 2 or len(values) != 2 + 2 * values[1]:
            self.fail(f"'{keyword}' is an exponent, a count and as many pairs")
        unit = power(self.exponent(values[0]))
        self.ascending(values[2::2])
        return {i: n * unit for i, n in zip(values[2::2], values[3::2], strict=True)}

    def indices(self, keyword: str) -> list[int] | None:
        """A count and as many ascending indices, or None for *."""
        if self.next_is(keyword.encode() + b" *"):
            self.word(keyword, ["*"])
            return None
        count, *values = self.integers(keyword)
        if len(values) != count:
            self.fail(f"'{keyword}' is * or a count and as many indices")
        self.ascending(values)
        return values

    def ascending(self, indices: Sequence[int]) -> None:
        if any(a >= b for a, b in zip([-1, *indices], indices, strict=False)):
            self.fail("indices are not ascending from 0")


def read_certificate(path: str) -> Certificate:
    lines = Lines(read_bytes(path, MOST_BYTES))
    lines.word("lipopt-certificate", ["1"])
    network = lines.rest("network")
    if not re.fullmatch(rb"[0-9a-f]{64}", network):
        lines.fail("'network' is followed by 64 hexadecimal digits")
    norm = lines.word("norm", ["linf", "l2", "l1"])
    outputs = [lines.pairs("weights") for _ in range(lines.count("outputs"))]
    box = None
    if lines.word("domain", ["space", "box"]) == "box":
        box = lines.numbers("lower"), lines.numbers("upper")
    number, exponent = lines.integers("bound", 2)
    bound = number * power(lines.exponent(exponent))
    relaxations = dict(_relaxation(lines) for _ in range(lines.count("relaxations")))
    lines.ascending(list(relaxations))
    if relaxations and box is None:
        lines.fail("relaxations belong to a box")
    parts = [_part(lines) for _ in range(lines.count("parts"))]
    position = lines.position
    if lines.integers("end", 1) != [position] or lines.position != len(lines.lines):
        lines.fail(f"the file ends with 'end {position}'")
    return Certificate(network.decode(), norm, outputs, box, bound, relaxations, parts)


def _relaxation(lines: Lines) -> tuple[int, tuple[list[Fraction], list[Fraction]]]:
    (node,) = lines.integers("relaxation", 1)
    return node, (lines.numbers("below"), lines.numbers("above"))


def _part(lines: Lines) -> Part:
    row = lines.indices("part")
    if row is not None and len(row) != 1:
        lines.fail("'part' is followed by * or one row")
    inputs = lines.indices("inputs")
    neurons = [_neurons(lines) for _ in range(lines.count("variables"))]
    lines.ascending([node for node, _, _ in neurons])
    lengths = [len(indices) for _, _, indices in neurons]
    count = lines.count("terms")
    if count == 0:
        lines.fail("a part has at least one term")
    terms: list[tuple[Functional | None, Rule]] = []
    for k in range(count):
        functional = lines.pairs("functional") if k < count - 1 else None
        terms.append((functional, _rule(lines, lengths)))
    return Part(None if row is None else row[0], inputs, neurons, terms)


def _neurons(lines: Lines) -> tuple[int, bool, list[int]]:
    centered = lines.next_is(b"centered ")
    values = lines.integers("centered" if centered else "neurons")
    if len(values) < 2 or len(values) != 2 + values[1]:
        lines.fail("'neurons' and 'centered' are a node, a count and as many indices")
    lines.ascending(values[2:])
    return values[0], centered, values[2:]


def _rule(lines: Lines, lengths: list[int]) -> Rule:
    """`lengths`: the number of variables of each node."""
    name = lines.word("rule", ["path-sum", "product", "products", "sdp"])
    if name == "path-sum":
        return PathSum()
    if name == "product":
        return Product(dict(_norm(lines) for _ in range(lines.count("norms"))))
    if name == "products":
        (exponent,) = lines.integers("grid", 1)
        return Products(lines.exponent(exponent), [_set(lines) for _ in range(lines.count("sets"))])
    mu, delta = lines.numbers("mu"), lines.numbers("delta")
    tau = [value for length in lengths for value in lines.numbers("tau", length)]
    if min([*mu, *delta, *tau]) < 0:
        lines.fail("a multiplier is negative")
    return Sdp(mu, delta, tau, _factor(lines))


def _norm(lines: Lines) -> tuple[tuple[int, int], tuple[Fraction, Factor]]:
    node, source, number, exponent = lines.integers("norm", 4)
    return (node, source), (number * power(lines.exponent(exponent)), _factor(lines))


def _set(lines: Lines) -> tuple[list[int], list[int]]:
    size, *values = lines.integers("set")
    if not 0 <= size <= LARGEST_SET:
        raise LimitExceeded(f"line {lines.position}: a set of {size} variables; the limit is {LARGEST_SET}")
    if len(values) != size + 2**size:
        lines.fail("'set' is a size, as many variables, and a multiplier for each of their products")
    variables, multipliers = values[:size], values[size:]
    if len(set(variables)) != size or min(multipliers) < 0:
        lines.fail("a variable occurs twice in a set, or a multiplier is negative")
    return variables, multipliers


def _factor(lines: Lines) -> Factor:
    scale = [lines.exponent(k) for k in lines.integers("scale")]
    (exponent,) = lines.integers("factor", 1)
    first, rows = [], []
    for i in range(len(scale)):
        start, *entries = lines.integers("row")
        if not 0 <= start <= i or len(entries) != i + 1 - start:
            lines.fail(f"row {i} of a factor is a column and the entries from there to {i}")
        first.append(start)
        rows.append(entries)
    return Factor(scale, lines.exponent(exponent), first, rows)
