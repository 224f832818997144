"""The permanent test: sampled gradients <= lower bounds on the POP <= its exact optimum <= every upper bound."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Question, questions

import lipopt.api
from lipopt.cells.refine import refine
from lipopt.lower.pop import enumerate_pop, free_neurons
from lipopt.methods.registry import REGISTER
from lipopt.problem.question import Question as Asked
from lipopt.problem.question import pose
from lipopt.problem.task import Budget


def exact(question: Question) -> tuple[float, float]:
    """The optimum of the POP by enumeration, of the problem as it stands and of the presolved one.

    They agree, unless there are products: the latter knows their factors, the former squares."""
    network = question.network
    asked = Asked.about(network, norm=question.norm, output=question.output, domain=question.domain)
    posed = refine(pose(network, asked), Budget())
    assert free_neurons(posed.raw) <= 14
    raw = max(enumerate_pop(part) for part, _ in posed.parts)
    presolved = max(enumerate_pop(part) for _, part in posed.parts)
    assert posed.products or np.isclose(raw, presolved, rtol=1e-9, atol=1e-12)
    return raw, presolved


def divides(result: lipopt.Result) -> bool:
    """Whether a result comes from branch and bound."""
    return "branch" in (result.method, result.details.get("chosen"))


@settings(max_examples=400)
@given(questions(), st.sampled_from(sorted(REGISTER)))
def test_sandwich(question: Question, method: str) -> None:
    """Both baselines and one more method, on every question."""
    raw, presolved = exact(question)
    least = min(raw, presolved)
    results = lipopt.compare(
        question.network,
        methods=sorted({method, "path-sum", "product"}),
        samples=100,
        norm=question.norm,
        output=question.output,
        domain=question.domain,
    )
    assert len(results) + len(results.refused) == len({method, "path-sum", "product"})
    assert results.refused.keys() <= {"lipopt", "shor"}  # what does not take every norm
    sampled = max(r.lower for r in results if not divides(r))
    for r in results:
        if divides(r):  # it bounds the constant itself, which the optimum is a bound of
            assert sampled <= r.lower <= r.upper, r
            assert r.lower <= least * (1 + 1e-9) + 1e-300, r
        else:
            assert 0 <= r.lower <= least * (1 + 1e-9) + 1e-300, r
            assert least <= r.upper, r
            if r.pop_lower is None:  # a method got below it by knowing squares
                assert raw < presolved, r
            else:
                assert r.lower <= r.pop_lower <= presolved * (1 + 1e-9) + 1e-300, r
