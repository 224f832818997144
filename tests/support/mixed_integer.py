"""Questions about ReLU networks in boxes as mixed-integer programs, solved by HiGHS: the local Lipschitz constant in the
l_inf norm, and the least value of a function of the outputs.

    maximize  |W_1' p_1|_1     over x in a box
    z_i = max(0, W_i z_{i-1} + b_i)         values; z_0 = x
    p_i = d_i * (W_{i+1}' p_{i+1})          derivatives of the output; d_i in {0, 1} are the slopes

Products with a binary variable and absolute values are written with big constants, from interval
arithmetic: what one would write without a tool for the purpose. HiGHS works up to a tolerance, so
its bounds are no proofs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import highspy
import numpy as np
import scipy.sparse as sp

from lipopt.numerics.arrays import Array

TOLERANCE = 1e-9  # of constraints and of integers
FEASIBLE = 2  # how HiGHS says that it has found a solution


@dataclass(frozen=True)
class Answer:
    """What HiGHS found: a value that is attained, and one that cannot be exceeded."""

    lower: float
    upper: float
    is_finished: bool


@dataclass(frozen=True)
class Quantity:
    """An affine function of the variables, and an interval for it."""

    terms: Mapping[int, float]  # factors by variable
    constant: float
    low: float
    high: float

    @property
    def is_constant(self) -> bool:
        return not self.terms


def fixed(value: float) -> Quantity:
    return Quantity({}, value, value, value)


def combination(
    weights: Sequence[float], parts: Sequence[Quantity], constant: float = 0.0
) -> Quantity:
    """The sum of weight times part, plus a constant."""
    terms: dict[int, float] = {}
    total = constant
    low = constant
    high = constant
    for weight, part in zip(weights, parts, strict=True):
        for variable, factor in part.terms.items():
            terms[variable] = terms.get(variable, 0.0) + weight * factor
        total += weight * part.constant
        low += min(weight * part.low, weight * part.high)
        high += max(weight * part.low, weight * part.high)
    return Quantity(terms, total, low, high)


@dataclass(eq=False)
class Program:
    """A mixed-integer program while it is written."""

    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    is_integer: list[bool] = field(default_factory=list)
    rows: list[Quantity] = field(default_factory=list)  # that are <= 0

    def variable(self, low: float, high: float, is_integer: bool = False) -> Quantity:
        number = len(self.low)
        self.low.append(low)
        self.high.append(high)
        self.is_integer.append(is_integer)
        return Quantity({number: 1.0}, 0.0, low, high)

    def binary(self) -> Quantity:
        return self.variable(0.0, 1.0, is_integer=True)

    def at_most(self, left: Quantity, right: Quantity) -> None:
        """Require left <= right."""
        self.rows.append(combination([1.0, -1.0], [left, right]))

    def relu(self, y: Quantity) -> tuple[Quantity, Quantity]:
        """max(0, y) and its slope."""
        if y.low >= 0:
            return y, fixed(1.0)
        if y.high <= 0:
            return fixed(0.0), fixed(0.0)
        slope = self.binary()
        z = self.variable(0.0, y.high)
        self.at_most(y, z)
        self.at_most(z, combination([y.high], [slope]))
        self.at_most(z, combination([1.0, y.low], [y, slope], -y.low))
        return z, slope

    def product(self, slope: Quantity, g: Quantity) -> Quantity:
        """A slope times g."""
        if slope.is_constant:
            return combination([slope.constant], [g])
        if g.is_constant:
            return combination([g.constant], [slope])
        p = self.variable(min(g.low, 0.0), max(g.high, 0.0))
        self.at_most(p, combination([g.high], [slope]))
        self.at_most(combination([g.low], [slope]), p)
        self.at_most(p, combination([1.0, g.low], [g, slope], -g.low))
        self.at_most(combination([1.0, g.high], [g, slope], -g.high), p)
        return p

    def absolute(self, q: Quantity) -> Quantity:
        """What is at most |q|, and |q| where it is maximized."""
        if q.low >= 0:
            return q
        if q.high <= 0:
            return combination([-1.0], [q])
        is_positive = self.binary()
        size = self.variable(0.0, max(-q.low, q.high))
        self.at_most(size, combination([1.0, 2 * q.low], [q, is_positive], -2 * q.low))
        self.at_most(size, combination([-1.0, 2 * q.high], [q, is_positive]))
        return size

    def maximize(self, goal: Quantity, gap: float, seconds: float) -> Answer:
        """Solve it up to a relative gap."""
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("threads", 1)
        highs.setOptionValue("mip_rel_gap", gap)
        highs.setOptionValue("mip_feasibility_tolerance", TOLERANCE)
        highs.setOptionValue("primal_feasibility_tolerance", TOLERANCE)
        highs.setOptionValue("time_limit", seconds)
        highs.passModel(self._model(goal))
        highs.run()
        status = highs.getModelStatus()
        is_finished = status == highspy.HighsModelStatus.kOptimal
        if not is_finished and status != highspy.HighsModelStatus.kTimeLimit:
            raise RuntimeError(f"HiGHS says: {highs.modelStatusToString(status)}")
        info = highs.getInfo()
        lower = info.objective_function_value
        upper = info.mip_dual_bound if any(self.is_integer) else lower
        if info.primal_solution_status != FEASIBLE:
            lower = 0.0
        return Answer(lower, min(upper, goal.high), is_finished)

    def _model(self, goal: Quantity) -> highspy.HighsLp:
        rows = self._matrix(self.rows)
        costs = self._matrix([goal]).toarray()[0]
        size = len(self.rows)
        lp = highspy.HighsLp()
        lp.num_col_ = len(self.low)
        lp.num_row_ = size
        lp.sense_ = highspy.ObjSense.kMaximize
        lp.offset_ = goal.constant
        lp.col_cost_ = costs
        lp.col_lower_ = np.array(self.low)
        lp.col_upper_ = np.array(self.high)
        lp.row_lower_ = np.full(size, -np.inf)
        lp.row_upper_ = np.array([-row.constant for row in self.rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = rows.indptr
        lp.a_matrix_.index_ = rows.indices
        lp.a_matrix_.value_ = rows.data
        kinds = {True: highspy.HighsVarType.kInteger, False: highspy.HighsVarType.kContinuous}
        lp.integrality_ = [kinds[entry] for entry in self.is_integer]
        return lp

    def _matrix(self, quantities: Sequence[Quantity]) -> sp.csr_array:
        """The factors of all variables, a row for each quantity."""
        starts = [0]
        columns: list[int] = []
        factors: list[float] = []
        for quantity in quantities:
            columns += quantity.terms.keys()
            factors += quantity.terms.values()
            starts.append(len(columns))
        return sp.csr_array((factors, columns, starts), shape=(len(quantities), len(self.low)))


def local_constant(
    weights: Sequence[Array],
    biases: Sequence[Array],
    lower: Array,
    upper: Array,
    gap: float = 1e-6,
    seconds: float = float("inf"),
) -> Answer:
    """The constant of a ReLU network with one output in a box."""
    program = Program()
    values = []
    for low, high in zip(lower, upper, strict=True):
        values.append(program.variable(float(low), float(high)))
    slopes: list[list[Quantity]] = []
    for matrix, bias in zip(weights[:-1], biases[:-1], strict=True):
        outputs = [program.relu(y) for y in layer(matrix, values, bias)]
        values = [z for z, _ in outputs]
        slopes.append([slope for _, slope in outputs])
    derivatives = [fixed(float(weight)) for weight in weights[-1][0]]
    for matrix, own in zip(reversed(weights[:-1]), reversed(slopes), strict=True):
        through = []
        for slope, g in zip(own, derivatives, strict=True):
            through.append(program.product(slope, g))
        derivatives = layer(matrix.T, through, np.zeros(matrix.shape[1]))
    sizes = [program.absolute(q) for q in derivatives]
    goal = combination([1.0] * len(sizes), sizes)
    if goal.is_constant:
        return Answer(goal.constant, goal.constant, True)
    return program.maximize(goal, gap, seconds)


def least_value(
    weights: Sequence[Array], biases: Sequence[Array], lower: Array, upper: Array, row: Array
) -> float:
    """The least value of row @ outputs of a ReLU network in a box."""
    program = Program()
    values = []
    for low, high in zip(lower, upper, strict=True):
        values.append(program.variable(float(low), float(high)))
    for matrix, bias in zip(weights[:-1], biases[:-1], strict=True):
        values = [program.relu(y)[0] for y in layer(matrix, values, bias)]
    outputs = layer(weights[-1], values, biases[-1])
    return -program.maximize(combination([-w for w in row], outputs), 1e-9, float("inf")).upper


def layer(matrix: Array, values: Sequence[Quantity], bias: Array) -> list[Quantity]:
    """matrix @ values + bias."""
    found = []
    for row, constant in zip(matrix, bias, strict=True):
        found.append(combination([float(w) for w in row], values, float(constant)))
    return found
