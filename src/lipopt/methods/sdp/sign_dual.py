"""The dual of the SDP with signs: multipliers from vectors, and a proof that they bound the optimum.

With the variables of `signs`, let S be the matrix of the quadratic form

    mu w^2 + sum_a eta_a e_a^2 + sum_j delta_j t_j^2 - w.C x - sum of lambda q over triangles
        + sum_a tau_a (z_a - l_a y_a)(z_a - u_a y_a)
        + sum_a alpha_a (w z_a - m_a w y_a - h_a e_a y_a) + beta_a (e_a z_a - m_a e_a y_a - h_a w y_a)
        - sum of d.N d over alternatives

where w.C x is written without the z of neurons that are not inner, lambda >= 0, and every N is in its
cone (see `alternatives`). At the points where the problem is largest the two lines before the last
are 0, q >= -1 and d.N d >= 0. So if S is positive semidefinite,

    w.C x <= mu + sum of eta + sum of delta + sum of lambda.

For l2, delta is the same for all inputs and counts once.

At an optimum S times the vectors is 0, which says what tau and the multipliers of squares are. The z
are then eliminated, and the multipliers of squares are raised until what is left is semidefinite.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigvalsh, solve_triangular

from ...numerics.arrays import Array
from ...numerics.rounding import gamma
from ...numerics.semidefinite import is_positive_semidefinite
from ...problem.proofs import SignMultipliers
from .alternatives import is_in_cone
from .sign_network import Point, SignNetwork, Weights
from .signs import SignForm

# The relative inflations of tau that are tried: more of it makes S definite farther from an optimum.
INFLATIONS = (1e-5, 1e-4, 1e-3, 1e-2, 3e-2)
# The largest number in a proof, and 1 over the smallest on the diagonal of S.
LARGEST = 2.0**200
# The smallest tau, relative to the median.
MIN_RELATIVE_TAU = 1e-9
# Multipliers of squares are raised in proportion to themselves, or to this share of their mean.
MIN_RAISE = 1.0
# How much more they are raised than seems necessary, relative to their mean: tried in turn.
MARGINS = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5)


def fit(network: SignNetwork, point: Point, weights: Weights) -> SignMultipliers | None:
    """Multipliers from vectors and the multipliers of their constraints, not yet proved.

    None if there are none."""
    found = None
    for inflation in INFLATIONS:
        new = _fit_inflated(network, point, weights, inflation)
        if new is not None and (found is None or new.bound < found.bound):
            found = new
    return None if found is None else _scaled(found, network.scale)


def prove(form: SignForm, multipliers: SignMultipliers) -> SignMultipliers | None:
    """Multipliers, a little larger, for which S is proved positive semidefinite; None if none are."""
    for margin in MARGINS:
        raised = _raised(multipliers, margin * multipliers.bound / form.signs)
        if is_proved(form, raised):
            return raised
    return None


def is_proved(form: SignForm, multipliers: SignMultipliers) -> bool:
    """Whether triangles have multipliers >= 0, alternatives such that are in their cones, and S is
    positive semidefinite.

    An entry of S is a sum of at most so many products as are counted here, each with at most four
    factors that are rounded: its error is at most gamma of that times the same sum of absolute
    values. Scaling by powers of two changes nothing. What underflows is nothing to a diagonal of at
    least 1 / LARGEST, if no number is above LARGEST."""
    S = dual_matrix(form, multipliers)
    diagonal = np.diagonal(S)
    largest = max(np.abs(S).max(), np.abs(form.A).max(), np.abs(multipliers.tau).max(initial=0.0))
    if not largest <= LARGEST or not (diagonal >= 1 / LARGEST).all():
        return False
    if not (multipliers.triangles.weights >= 0).all():
        return False
    if not all(is_in_cone(N) for N in multipliers.alternatives.weights):
        return False
    roundings = 2 * form.neurons + 4 * len(form.inner) + multipliers.triangles.count + 16
    roundings += form.forms.roundings
    errors = gamma(roundings) * dual_matrix(form, multipliers, absolute=True)
    factors = -np.rint(np.log2(diagonal) / 2).astype(np.int64)
    S = np.ldexp(np.ldexp(S, factors), factors[:, None])
    errors = np.ldexp(np.ldexp(errors, factors), factors[:, None])
    error = 1.01 * float(errors.sum(axis=1).max())
    return is_positive_semidefinite(S, error)


def dual_matrix(form: SignForm, m: SignMultipliers, *, absolute: bool = False) -> Array:
    """S in the variables (w, e, t, z); with `absolute`, the sums of the absolute values of terms."""
    size = np.abs if absolute else np.asarray
    minus = 1.0 if absolute else -1.0
    inner = form.inner
    A = size(form.A[inner])
    middle = size(form.middle[inner])
    half = size(form.half[inner])
    alpha = size(m.alpha)
    beta = size(m.beta)
    units = 1 + form.neurons
    z = np.arange(form.inputs, len(form.C))
    between = form.bilinear(absolute=absolute) * minus
    between[0, z] += alpha
    between[1 + inner, z] += beta
    between[0] += minus * ((alpha * middle + beta * half) @ A)
    between[1 + inner] += minus * ((alpha * half + beta * middle)[:, None] * A)
    S = np.zeros((form.order, form.order))
    S[:units, units:] = between / 2
    S[units:, :units] = between.T / 2
    signs = form.signs
    triangles = m.triangles.matrix(signs, m.triangles.weights, absolute=absolute)
    S[:signs, :signs] += minus * triangles / 2
    S[units:, units:] += _tau_matrix(form, m.tau, absolute)
    S[units:, units:] += minus * form.forms.matrix(m.alternatives.weights, absolute=absolute)
    delta = np.broadcast_to(m.delta, form.inputs)
    squares = np.concatenate([[m.mu], m.eta, delta, np.zeros(len(z))])
    S[np.arange(form.order), np.arange(form.order)] += size(squares)
    return S


def _tau_matrix(form: SignForm, tau: Array, absolute: bool = False) -> Array:
    """The sum of tau (z - l y)(z - u y), which is tau ((z - m y)^2 - (h y)^2), in x."""
    size = np.abs if absolute else np.asarray
    minus = 1.0 if absolute else -1.0
    inner = form.inner
    A = size(form.A[inner])
    distances = minus * size(form.middle[inner])[:, None] * A
    distances[np.arange(len(inner)), form.inputs + np.arange(len(inner))] += 1.0
    radii = size(form.half[inner])[:, None] * A
    weights = size(tau)[:, None]
    return distances.T @ (weights * distances) + minus * (radii.T @ (weights * radii))


def _fit_inflated(
    network: SignNetwork, point: Point, weights: Weights, inflation: float
) -> SignMultipliers | None:
    """Multipliers of the network's objective, with tau inflated."""
    form = network.form
    found = SignMultipliers(
        mu=0.0,
        eta=np.zeros(form.neurons),
        delta=np.zeros(form.inputs if form.norm.bounds_each_input else 1),
        tau=np.zeros(len(form.inner)),
        alpha=weights.alpha * weights.scale,
        beta=weights.beta * weights.scale,
        triangles=weights.triangles,
        alternatives=weights.alternatives.multipliers(form.trees, form.forms.sizes),
    )
    scaled = replace(form, C=form.C / network.scale, last=form.last / network.scale)
    S = dual_matrix(scaled, found)
    vectors = np.concatenate([network.w, point.e, point.x])
    tau = _fit_tau(network, point, S, vectors) * (1 + inflation)
    if form.trees:
        # Inside a tree tau may be 0, and a share of 0 inflates nothing: these are shares of 1.
        radii = form.half[form.inner] * point.lengths
        tau += inflation / (len(tau) * radii**2)
    units = 1 + form.neurons
    S[units:, units:] += _tau_matrix(form, tau)
    signs = units + form.inputs
    rest = _without_z(S, signs)
    if rest is None:
        return None
    squares = -(rest @ vectors[:signs] * vectors[:signs]).sum(axis=1)
    found = replace(found, tau=tau)
    return _raised_to_definite(form, found, rest, squares)


def _fit_tau(network: SignNetwork, point: Point, S: Array, vectors: Array) -> Array:
    """tau of inner neurons: the gradient in z over twice the radius of its ball."""
    form = network.form
    tau = np.zeros(len(form.inner))
    units = 1 + form.neurons
    S = S.copy()
    for layer, own in reversed(network.inner_layers()):
        rows = units + np.arange(layer.variables.start, layer.variables.stop)
        pull = np.linalg.norm(S[rows] @ vectors, axis=1)
        radii = form.half[layer.neurons] * point.lengths[own]
        tau[own] = pull / radii
        tau[own] = np.maximum(tau[own], MIN_RELATIVE_TAU * np.median(tau[own]))
        only = np.zeros(len(tau))
        only[own] = tau[own]
        S[units:, units:] += _tau_matrix(form, only)
    return tau


def _without_z(S: Array, signs: int) -> Array | None:
    """The Schur complement of the block of all z, or None if that is not definite."""
    if len(S) == signs:
        return S
    try:
        root = cholesky(S[signs:, signs:], lower=True)
    except LinAlgError:
        return None
    columns = solve_triangular(root, S[signs:, :signs], lower=True)
    return np.asarray(S[:signs, :signs] - columns.T @ columns)


def _raised_to_definite(
    form: SignForm, found: SignMultipliers, rest: Array, squares: Array
) -> SignMultipliers:
    """Multipliers of squares, raised by as little as makes `rest` plus them semidefinite."""
    units = 1 + form.neurons
    if not form.norm.bounds_each_input:
        # Vectors t have a length of 1 together: one multiplier for all.
        squares[units:] = squares[units:].sum()
    steps = np.maximum(squares, MIN_RAISE * np.abs(squares).mean())
    factors = 1 / np.sqrt(steps)
    matrix = (rest + np.diag(squares)) * factors * factors[:, None]
    least = float(eigvalsh(matrix, subset_by_index=[0, 0])[0])
    raised = squares - least * steps
    delta = raised[units:]
    if not form.norm.bounds_each_input:
        delta = delta[:1]
    return replace(found, mu=float(raised[0]), eta=raised[1:units], delta=delta)


def _raised(m: SignMultipliers, amount: float) -> SignMultipliers:
    """The same multipliers, with all of squares larger by an amount."""
    return replace(m, mu=m.mu + amount, eta=m.eta + amount, delta=m.delta + amount)


def _scaled(m: SignMultipliers, scale: float) -> SignMultipliers:
    """Multipliers of an objective that is larger by a factor."""
    triangles = replace(m.triangles, weights=m.triangles.weights * scale)
    return SignMultipliers(
        m.mu * scale,
        m.eta * scale,
        m.delta * scale,
        m.tau * scale,
        m.alpha * scale,
        m.beta * scale,
        triangles,
        replace(m.alternatives, weights=tuple(scale * N for N in m.alternatives.weights)),
    )
