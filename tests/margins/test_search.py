"""Branch and bound on margins ends with a proof or a counterexample, just below and above the radius where classes change too."""

from itertools import pairwise

import numpy as np
import pytest
from lipcheck_files import file_of
from mixed_integer import least_value

import lipcheck.certificate
import lipcheck.network
from lipopt import Ball, load
from lipopt.certificates.margins import certify_margins
from lipopt.margins.attack import margin_rows
from lipopt.margins.balls import Balls
from lipopt.margins.ladder import Effort, decide
from lipopt.model.norms import Norm
from lipopt.problem.proofs import MarginSplit

HALVINGS = 9  # of the radii between 0 and the largest
POINTS = 2
LARGEST = {Norm.LINF: 1.0, Norm.L2: 2.0, Norm.L1: 2.0}  # radii


def random_layers(sizes, seed):
    rng = np.random.default_rng(seed)
    weights = []
    biases = []
    for inputs, outputs in pairwise(sizes):
        weights.append(rng.normal(size=(outputs, inputs)))
        biases.append(rng.normal(size=outputs))
    return weights, biases


def bracketed(network, points, norm, clip, effort):
    """Radii around the one at which each class changes: all answers on the way, and both ends."""
    labels = network(points).argmax(axis=1)
    certified = np.zeros(len(points))
    failed = np.full(len(points), LARGEST[norm])
    answers = []
    for _ in range(HALVINGS):
        radii = (certified + failed) / 2
        found = decide(network, Balls.around(points, radii, clip, norm), labels, effort)
        is_certified = np.array([decision.status == "certified" for decision in found])
        certified = np.where(is_certified, radii, certified)
        failed = np.where(is_certified, failed, radii)
        for k, decision in enumerate(found):
            answers.append((k, int(labels[k]), float(radii[k]), decision))
    return answers, certified, failed


def check_answer(network, stored, domain, label, decision):
    """A certificate that lipcheck accepts, or a counterexample that is one."""
    if decision.status == "certified":
        certificate = certify_margins(network, domain, label, decision.proofs, decision.least)
        claim = lipcheck.certificate.check(stored, certificate.text.encode())
        assert 0 < float(claim.bound) <= decision.least
        return
    assert decision.status == "broken"
    x = decision.counterexample
    assert network(x).argmax() != label
    low, high = domain.bounds(len(x))
    assert (low <= x).all()
    assert (x <= high).all()
    ball = domain.ball(len(x))
    assert ball is None or ball.distances(x[:, None])[0] <= 1


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize("kind", ["relu", "leaky_relu", "abs"])
@pytest.mark.parametrize("sizes", [(5, 20, 3), (4, 10, 10, 3)])
def test_piecewise_linear_networks_are_decided(sizes, kind, norm):
    weights, biases = random_layers(sizes, seed=1)
    network = load(weights, biases=biases, activation=kind)
    stored = lipcheck.network.read_network(file_of(network))
    points = np.random.default_rng(1).normal(size=(POINTS, sizes[0]))
    effort = Effort(2000, keeps_proofs=True)
    answers, _, _ = bracketed(network, points, norm, None, effort)
    assert {decision.status for *_, decision in answers} == {"certified", "broken"}
    for k, label, radius, decision in answers[-2 * POINTS :]:
        domain = Ball(points[k], radius, norm=norm.value)
        check_answer(network, stored, domain, label, decision)


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize("kind", ["tanh", "softplus"])
def test_smooth_networks_of_few_inputs_are_decided(kind, norm):
    weights, biases = random_layers((2, 8, 6, 3), seed=2)
    network = load(weights, biases=biases, activation=kind)
    points = np.random.default_rng(2).uniform(-1, 1, size=(POINTS, 2))
    answers, _, _ = bracketed(network, points, norm, None, Effort(500))
    assert {decision.status for *_, decision in answers} <= {"certified", "broken"}
    assert "branching" in {decision.rung for *_, decision in answers}


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize(("kind", "widths"), [("tanh", (5, 4)), ("relu", (20, 20))])
def test_certificates_of_split_inputs(kind, widths, norm):
    """Of balls that are large for their margins: smooth neurons, or many of them."""
    weights, biases = random_layers((2, *widths, 2), seed=1)
    network = load(weights, biases=biases, activation=kind)
    stored = lipcheck.network.read_network(file_of(network))
    points = np.random.default_rng(1).uniform(-1, 1, size=(1, 2))
    effort = Effort(60, keeps_proofs=True)
    answers, _, _ = bracketed(network, points, norm, None, effort)
    trees = {}
    for _, label, radius, decision in answers:
        if decision.rung == "branching" and has_split_inputs(decision.proofs):
            trees[decision.cells] = (label, radius, decision)
    label, radius, decision = trees[min(trees)]
    domain = Ball(points[0], radius, norm=norm.value)
    check_answer(network, stored, domain, label, decision)


def has_split_inputs(proofs):
    return any(isinstance(tree, MarginSplit) and tree.cuts for tree in proofs.values())


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_a_mixed_integer_program(seed):
    """At the radii on both sides of the one where the class changes."""
    weights, biases = random_layers((4, 10, 10, 3), seed)
    network = load(weights, biases=biases)
    points = np.random.default_rng(seed).normal(size=(1, 4))
    label = int(network(points[0]).argmax())
    _, certified, failed = bracketed(network, points, Norm.LINF, None, Effort(2000))
    for radius, is_proved in ((certified[0], True), (failed[0], False)):
        margins = []
        for other in range(3):
            if other != label:
                row = margin_rows(network, np.array([label]), np.array([other]))[0]
                lower = points[0] - radius
                upper = points[0] + radius
                margins.append(least_value(weights, biases, lower, upper, row))
        assert (min(margins) > 0) == is_proved


def test_a_class_that_only_a_linear_program_breaks():
    """All neurons of a cell are split, and the ascent does not find the forces."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(20, 5)), rng.normal(size=(3, 20))]
    network = load(weights)
    x = rng.normal(size=(4, 5))[1:2]
    label = network(x).argmax(axis=1)
    (decision,) = decide(network, Balls.around(x, np.array([0.1])), label, Effort(100))
    assert decision.status == "broken"
    assert network(decision.counterexample).argmax() != label[0]
