"""Penalty: gradients against finite differences, values against the SDP, training, and bad use."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from live_models import MODELS, dense, live_model
from torch import nn

import lipopt
from lipopt.errors import LipoptError
from lipopt.methods.baselines import path_sum_bound
from lipopt.problem.question import Question, pose
from lipopt.problem.task import Task
from lipopt.training import Penalty
from lipopt.training.replay import WARM_UP, Replay

NORMS = ["linf", "l2", "l1"]


def made(model: nn.Module, inputs: Any, **options: Any) -> Penalty:
    """A penalty whose vectors do not move."""
    return Penalty(model, example_input=inputs, **options).eval()


def check_gradient(model: nn.Module, evaluate: Callable[[], Any]) -> None:
    """The gradient in all parameters, along random directions, against central differences."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    value = evaluate()
    gradients = torch.autograd.grad(value, parameters, allow_unused=True)
    assert any(g is not None and bool(g.abs().max() > 0) for g in gradients)
    generator = torch.Generator().manual_seed(1)
    step = 1e-6
    for _ in range(3):
        turns = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
        expected = sum(
            float((g * turn).sum())
            for g, turn in zip(gradients, turns, strict=True)
            if g is not None
        )
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                for p, turn in zip(parameters, turns, strict=True):
                    p.add_(sign * step * turn)
                values.append(float(evaluate()))
                for p, turn in zip(parameters, turns, strict=True):
                    p.sub_(sign * step * turn)
        difference = (values[0] - values[1]) / (2 * step)
        assert difference == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_gradients(name: str) -> None:
    model, inputs = live_model(name)
    check_gradient(model, made(model, inputs, rank=3))
    check_gradient(model, made(model, inputs, kind="path-sum"))


@pytest.mark.parametrize("name", ["normalized", "smooth"])
def test_gradients_in_balls(name: str) -> None:
    """Smooth activations carry gradients through their ranges of slopes; biases have gradients then."""
    model, inputs = live_model(name)
    penalty = made(model, inputs, kind="path-sum", radius=0.2)
    check_gradient(model, lambda: penalty(inputs))
    estimate = made(model, inputs, radius=0.2, rank=3)
    value = estimate(inputs)
    value.backward()
    assert 0 < float(value.detach()) <= estimate.certified(inputs) * 1.5
    bias = next(p for n, p in model.named_parameters() if n.endswith("bias"))
    moved = bias.grad is not None and bool(bias.grad.abs().max() > 0)
    assert moved == (name == "smooth")


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", ["dense", "residual"])
def test_gradients_of_duals(name: str, norm: Any) -> None:
    """With multipliers that are held fixed; the first vectors are not the best, so nothing is flat."""
    model, inputs = live_model(name)
    penalty = made(model, inputs, norm=norm, kind="dual")
    multipliers = penalty._multipliers()
    check_gradient(model, lambda: penalty._dual_with(multipliers))


def sdp_value(penalty: Penalty) -> tuple[float, float]:
    """The value of the SDP's vectors for the same question, and its bound."""
    rows = sp.csr_array(penalty.rows.numpy())
    posed = pose(penalty._live.network, Question(penalty.settings.norm, rows))
    bound = lipopt.SDP(gap=1e-4)(Task(posed.raw, posed.problem))
    return bound.details["primal"], bound.value


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["dense", "convolutional", "residual"])
def test_the_value_is_the_sdp_s(name: str, norm: Any) -> None:
    model, inputs = live_model(name)
    penalty = made(model, inputs, norm=norm, outputs="margins")
    penalty.refine(200)
    primal, bound = sdp_value(penalty)
    value = float(penalty().detach())
    assert value == pytest.approx(primal, rel=1e-3)
    assert value <= bound * (1 + 1e-9)


def test_a_certified_bound_is_the_sdp_s() -> None:
    model, inputs = live_model("normalized")
    penalty = made(model, inputs, norm="l2")
    _, bound = sdp_value(penalty)
    assert penalty.certified() == pytest.approx(bound, rel=1e-3)
    assert float(penalty().detach()) <= bound


@pytest.mark.parametrize("norm", NORMS)
def test_upper_bounds_are_above(norm: Any) -> None:
    model, inputs = live_model("residual")
    estimate = made(model, inputs, norm=norm)
    estimate.refine(200)
    upper = made(model, inputs, norm=norm, kind="path-sum")
    assert float(upper().detach()) >= float(estimate().detach())
    if norm != "l1":
        dual = made(model, inputs, norm=norm, kind="dual")
        dual.refine(200)
        assert float(dual().detach()) >= float(estimate().detach())
        assert float(dual().detach()) == pytest.approx(float(estimate().detach()), rel=0.02)


def test_a_path_sum_is_lipopt_s() -> None:
    """For one output of a network of dense layers, both are the same sum."""
    model, inputs = live_model("dense")
    network = lipopt.load(model)
    posed = pose(network, Question.about(network, output=1))
    found = made(model, inputs, kind="path-sum", outputs=1)()
    assert float(found.detach()) == pytest.approx(path_sum_bound(posed.problem), rel=1e-9)


def test_a_dual_is_a_bound_far_from_the_optimum() -> None:
    """Also with vectors that are far from the best ones."""
    for seed in range(2):
        model, inputs = live_model("dense", seed)
        penalty = made(model, inputs, kind="dual")
        for name, vectors in penalty.named_buffers():
            if name.startswith(("t", "v")) and vectors.dim() == 3:
                vectors.copy_(nn.functional.normalize(torch.randn_like(vectors), dim=1))
        primal, _ = sdp_value(penalty)
        assert float(penalty().detach()) >= primal * (1 - 1e-9)


def test_a_ball_is_not_above_the_whole_space() -> None:
    model, inputs = live_model("dense")
    everywhere = made(model, inputs).certified()
    wide = made(model, inputs, radius=1e3)
    narrow = made(model, inputs, radius=1e-4)
    assert wide.certified(inputs) == pytest.approx(everywhere, rel=1e-3)
    assert float(narrow(inputs).detach()) < everywhere
    clipped = made(model, inputs, radius=1e3, clip=(-1e-3, 1e-3))
    assert float(clipped(torch.zeros_like(inputs)).detach()) < everywhere
    # In a tiny ball where no neuron changes sign, the constant is the norm of the gradient.
    x = inputs[:1].clone().requires_grad_(True)
    jacobian = torch.autograd.functional.jacobian(model, x)[0, :, 0]
    tiny = made(model, inputs, radius=1e-6, norm="l2")
    expected = float(torch.linalg.matrix_norm(jacobian, 2))
    assert float(tiny(x.detach()).detach()) == pytest.approx(expected, rel=0.05)


def test_forms() -> None:
    model, inputs = live_model("dense")
    value = made(model, inputs)()
    constant = float(value.detach())
    for form, expected in {"square": constant**2, "log": np.log(constant)}.items():
        penalty = made(model, inputs, form=form)
        assert float(penalty().detach()) == pytest.approx(expected)
        check_gradient(model, penalty)
    below = made(model, inputs, form="hinge", target=constant - 1)
    assert float(below().detach()) == pytest.approx(1)
    above = made(model, inputs, form="hinge", target=constant + 1)()
    above.backward()
    assert float(above.detach()) == 0
    assert all(p.grad is None or not bool(p.grad.any()) for p in model.parameters())


def test_rows_of_outputs() -> None:
    model, inputs = live_model("dense")
    one = made(model, inputs, outputs=2)
    row = made(model, inputs, outputs=[0.0, 0.0, 1.0])
    assert float(one().detach()) == pytest.approx(float(row().detach()))
    assert one.certified() == pytest.approx(
        lipopt.bound(model, output=2, method="sdp", samples=10).upper
    )
    margin = made(model, inputs, outputs=[[1.0, -1.0, 0.0]])
    expected = lipopt.bound(model, margin=(0, 1), method="sdp", samples=10).upper
    assert margin.certified() == pytest.approx(expected)
    together = made(model, inputs, outputs="all")
    assert together.certified() >= one.certified()


# ---- training


def trained(strength: float) -> Penalty:
    """The penalty of a model after a hundred steps."""
    torch.manual_seed(0)
    model = dense()
    penalty = Penalty(model, outputs="margins")
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    x = torch.randn(64, 5)
    y = (x[:, 0] > 0).long()
    for _ in range(100):
        loss = nn.functional.cross_entropy(model(x), y) + strength * penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return penalty


def test_training_lowers_the_constant() -> None:
    """And the vectors follow: the estimate stays close to the optimum while the weights move."""
    penalty = trained(0.05)
    constant = penalty.certified()
    assert constant < 0.7 * trained(0.0).certified()
    assert 0.95 * constant <= float(penalty().detach()) <= constant * (1 + 1e-5)


def test_a_call_moves_the_vectors_in_training_alone() -> None:
    model, inputs = live_model("dense")
    penalty = Penalty(model, example_input=inputs)
    before = penalty.v0.clone()
    penalty.eval()()
    assert torch.equal(penalty.v0, before)
    penalty.train()()
    assert not torch.equal(penalty.v0, before)


def test_the_state_has_the_vectors_alone() -> None:
    model, inputs = live_model("dense")
    penalty = Penalty(model, example_input=inputs)
    assert list(penalty.parameters()) == []
    penalty.refine(50)
    state = copy.deepcopy(penalty.state_dict())
    other = Penalty(model, example_input=inputs, seed=5)
    assert set(state) == {"rows", "inputs", "turn", "t", "v0", "v1"}
    assert not torch.equal(other.t, penalty.t)
    other.load_state_dict(state)
    assert float(other.eval()().detach()) == pytest.approx(float(penalty.eval()().detach()))


def test_it_follows_the_model_to_another_precision() -> None:
    model, inputs = live_model("normalized")
    penalty = made(model, inputs)
    expected = float(penalty().detach())
    model.float()
    value = penalty()
    assert value.dtype == torch.float32
    assert float(value.detach()) == pytest.approx(expected, rel=1e-4)
    value.backward()
    assert all(p.grad.dtype == torch.float32 for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_single(kind: torch.dtype) -> None:
    torch.manual_seed(0)
    model = dense().to(kind)
    penalty = Penalty(model)
    value = penalty()
    value.backward()
    assert value.dtype == torch.float32
    first = next(model.parameters())
    assert first.grad is not None
    assert first.grad.dtype == kind


def test_autocast_does_not_change_the_value() -> None:
    torch.manual_seed(0)
    model = dense()
    penalty = made(model, None)
    expected = float(penalty().detach())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert float(penalty().detach()) == expected


def test_wrapped_modules() -> None:
    torch.manual_seed(0)
    model = dense()
    penalty = Penalty(nn.DataParallel(model))
    penalty().backward()
    assert model[0].weight.grad is not None
    frozen = dense()
    frozen[0].weight.requires_grad_(False)
    Penalty(frozen)().backward()
    assert frozen[0].weight.grad is None
    assert frozen[2].weight.grad is not None


def test_normalization_is_the_evaluation_s() -> None:
    """The model stays in training mode; its running statistics are read, not changed."""
    model, inputs = live_model("normalized")
    model.train()
    penalty = made(model, inputs)
    before = penalty().detach().clone()
    statistics = model[1].running_var.clone()
    assert model.training
    assert torch.equal(model[1].running_var, statistics)
    with torch.no_grad():
        model[1].running_var.mul_(4)
    assert float(penalty().detach()) < float(before)


@pytest.mark.parametrize("kind", ["estimate", "path-sum", "dual"])
def test_no_gradient_is_made_where_none_is_wanted(kind: Any) -> None:
    model, inputs = live_model("dense")
    penalty = made(model, inputs, kind=kind, norm="l2")
    expected = penalty()
    assert expected.requires_grad
    with torch.no_grad():
        value = penalty()
    assert not value.requires_grad
    assert float(value) == float(expected.detach())


@pytest.mark.parametrize("kind", ["estimate", "path-sum", "dual"])
def test_a_linear_model(kind: Any) -> None:
    """Without activations, the constant is the norm of the matrix."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1).double()
    value = Penalty(model, kind=kind)()
    value.backward()
    assert float(value.detach()) == pytest.approx(
        float(model.weight.abs().sum().detach()), rel=1e-3
    )
    assert model.weight.grad is not None
    assert torch.allclose(model.weight.grad, model.weight.detach().sign(), atol=1e-2)


def test_under_l1_all_inputs_get_their_turn() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 2)).double()
    with torch.no_grad():
        model[0].weight[:, 17] *= 10  # far from the inputs that the search begins with
    penalty = Penalty(model, norm="l1")
    penalty.refine(100)
    assert 17 in penalty.inputs.tolist()
    assert float(penalty.eval()().detach()) == pytest.approx(penalty.certified(), rel=1e-3)


class Rerun:
    """What a CUDA graph does, without one: run again."""

    made = 0

    def __init__(self, run: Callable[[], Any], tensors: Any) -> None:
        Rerun.made += 1
        self.run = run
        self.fits = Replay.fits.__get__(self)
        self._places = [(tensor.data_ptr(), tensor.requires_grad) for tensor in tensors]

    def __call__(self) -> Any:
        return self.run()


def test_replayed_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path that a GPU takes gives the same value and gradients, and notices weights that moved."""
    plain, inputs = live_model("normalized")
    other, _ = live_model("normalized")
    expected = Penalty(plain, example_input=inputs)
    replayed = Penalty(other, example_input=inputs)
    monkeypatch.setattr(replayed, "_can_replay", lambda: True)
    monkeypatch.setattr("lipopt.training.penalty.Replay", Rerun)
    for _ in range(2):
        value = replayed()
        assert float(value.detach()) == pytest.approx(float(expected().detach()))
    (2 * value).backward()
    expected.eval()
    (2 * expected()).backward()
    for p, q in zip(plain.parameters(), other.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None and q.grad is not None:
            assert float((p.grad - q.grad).abs().max()) <= 0.05 * float(p.grad.abs().max())
    assert Rerun.made == 1
    other[0].weight.data = other[0].weight.data.clone()
    replayed()
    assert Rerun.made == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_cuda_graph_gives_the_same() -> None:
    torch.manual_seed(0)
    model = dense().cuda()
    with_graph = Penalty(model)
    without = Penalty(model, cuda_graph=False)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(WARM_UP):
        without()  # as the recording does
    for _ in range(5):
        value = with_graph()
        assert float(value.detach()) == pytest.approx(float(without().detach()), rel=1e-4)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


# ---- bad use


def broken(model: nn.Sequential) -> nn.Sequential:
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
    return model


def dead(model: nn.Sequential) -> nn.Sequential:
    with torch.no_grad():
        model[4].weight.zero_()
    return model


class LearnedSwish(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.beta = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        return y * torch.sigmoid(self.beta * y)


MODELS_THAT_ARE_REFUSED = {
    "layer norm": (lambda: nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), "without a bound"),
    "no shape": (lambda: nn.Sequential(nn.Conv2d(1, 1, 2)), "input_shape"),
    "not a number": (lambda: broken(dense()), "NaN"),
    "dead": (lambda: dead(dense()), "dead"),
    "no module": (lambda: "model.onnx", "nn.Module"),
    "learned gate": (LearnedSwish, "trained numbers"),
}


@pytest.mark.parametrize("name", MODELS_THAT_ARE_REFUSED)
def test_models_that_are_refused(name: str) -> None:
    make, message = MODELS_THAT_ARE_REFUSED[name]
    with pytest.raises(LipoptError, match=message):
        Penalty(make())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "l3"}, "unknown norm"),
        ({"rank": 0}, "rank"),
        ({"kind": "exact"}, "unknown kind"),
        ({"form": "cube"}, "unknown form"),
        ({"form": "hinge"}, "needs a target"),
        ({"target": 3.0}, "needs a target"),
        ({"radius": -1.0}, "radius"),
        ({"clip": (0, 1)}, "goes with a radius"),
        ({"clip": (1, 0), "radius": 0.1}, "clip"),
        ({"kind": "dual", "norm": "l1"}, "path sum"),
        ({"outputs": 3}, "out of range"),
        ({"outputs": "some"}, "unknown outputs"),
        ({"outputs": [[1.0, 2.0]]}, "do not fit"),
        ({"outputs": [np.nan, 1.0, 1.0]}, "NaN"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(LipoptError, match=message):
        Penalty(dense(), **options)


def test_inputs_go_with_a_radius() -> None:
    with pytest.raises(LipoptError, match="give it a radius"):
        Penalty(dense())(torch.zeros(1, 5))
    with pytest.raises(LipoptError, match="needs a batch"):
        Penalty(dense(), radius=0.1)()
    with pytest.raises(LipoptError, match="nothing to refine"):
        Penalty(dense(), radius=0.1).refine()
    with pytest.raises(LipoptError, match="no batch for a model"):
        Penalty(dense(), radius=0.1)(torch.zeros(5))


def test_weights_that_break_in_training() -> None:
    model = dense()
    penalty = Penalty(model)
    broken(model)
    with pytest.raises(LipoptError, match=r"'0.weight' has weights that are NaN"):
        penalty()
    assert bool(torch.isfinite(penalty.t).all())


def test_an_output_that_dies_in_training() -> None:
    model = dense()
    penalty = Penalty(model)
    dead(model)
    with pytest.raises(LipoptError, match="died out"):
        penalty()


def test_no_warnings() -> None:
    """Also for operators that PyTorch cannot apply to columns at once."""
    model, inputs = live_model("moves")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Penalty(model, example_input=inputs)().backward()
