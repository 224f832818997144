"""The permanent test: sampled gradients <= exact optimum of the POP <= every upper bound."""

import numpy as np
from hypothesis import given, settings
from strategies import Question, questions

import lipopt
from lipopt.lower import enumerate_pop, free_neurons
from lipopt.methods import REGISTER
from lipopt.presolve import presolve, split_rows
from lipopt.problem import derivative_problem, output_matrix, slope_ranges


def exact(question: Question) -> float:
    """The optimum of the POP by enumeration, of the problem as it stands and of the presolved one; they agree."""
    network = question.network
    ranges = slope_ranges(network, question.domain)
    raw = derivative_problem(network, ranges, question.norm, output_matrix(network, question.output, None))
    assert free_neurons(raw) <= 14
    values = []
    for problem in (raw, presolve(raw)):
        rows = split_rows(problem) if question.norm == "linf" else [problem]
        values.append(max(enumerate_pop(row) for row in rows))
    assert np.isclose(values[0], values[1], rtol=1e-9, atol=1e-12)
    return min(values)


@settings(max_examples=400)
@given(questions())
def test_sandwich(question: Question) -> None:
    optimum = exact(question)
    options = {"norm": question.norm, "output": question.output, "domain": question.domain}
    refusals: list[str] = []
    results = lipopt.compare(
        question.network,
        methods=sorted(REGISTER),
        samples=200,
        on_refusal=lambda name, error: refusals.append(f"{name}: {error}"),
        **options,
    )
    assert {"auto", "path-sum", "product"} <= {r.method for r in results}, refusals
    for r in results:
        assert 0 <= r.lower <= optimum * (1 + 1e-9), r
        assert r.lower <= r.pop_lower <= r.upper, r
        assert optimum <= r.upper, r
