"""Training with the constant: networks for digits, dense and convolutional, and a policy for a pendulum.

Every network is trained from the same weights with another term in its loss, and then judged by what lipopt proves of it.
Strengths are chosen so that rows can be compared at equal accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import torch

import lipopt

from . import training_runs as runs
from .style import BLACK, BLUE, GRAY, GREEN, ORANGE, PURPLE, save
from .table import Cell, Row, Setup, fill

SEED = 0
RADII = (0.03, 0.05, 0.1)
ATTACK_RADIUS = 0.1
# The terms of the loss, and their strengths; of adversarial training, the radius of the attacks.
DENSE = (
    ("none", 0.0),
    ("weight decay", 1e-4),
    ("spectral", 3e-3),
    ("path sum", 3e-5),
    ("path sum", 1e-4),
    ("SDP", 1e-3),
    ("SDP", 3e-3),
    ("adversarial", 0.1),
)
CONVOLUTIONAL = (("none", 0.0), ("path sum", 3e-5), ("SDP", 1e-3))
POLICIES = (
    ("none", 0.0),
    ("path sum", 1e-3),
    ("path sum", 1e-2),
    ("SDP", 1e-3),
    ("SDP", 1e-2),
    ("SDP", 3e-2),
)
EPOCHS = {"full": 15, "quick": 30, "tiny": 2}  # quick: of the 1,348 small digits
POLICY_EPOCHS = {"full": 200, "quick": 30, "tiny": 1}
CERTIFIED = {"full": 100, "quick": 20, "tiny": 1}  # test images
ATTACKED = {"full": 2000, "quick": 200, "tiny": 5}
LOOK = {
    "none": {"color": BLACK, "marker": "o"},
    "weight decay": {"color": GRAY, "marker": "s"},
    "spectral": {"color": GREEN, "marker": "^"},
    "path sum": {"color": ORANGE, "marker": "v"},
    "SDP": {"color": BLUE, "marker": "D"},
    "adversarial": {"color": PURPLE, "marker": "P"},
}


def run(setup: Setup) -> None:
    rows = fill(setup, "training", _cells(setup), partial(_measure, setup))
    policies = fill(setup, "training_policy", _policy_cells(setup), partial(_measure_policy, setup))
    (setup.folder / "training.md").write_text(_tables(setup, rows, policies))
    _draw_constants(setup, rows, policies)
    _draw_certified(setup, rows)


def _cells(setup: Setup) -> list[Cell]:
    chosen: dict[str, Sequence[tuple[str, float]]] = {"dense": DENSE, "cnn": CONVOLUTIONAL}
    if setup.scale == "tiny":
        chosen = {"dense": (("none", 0.0), ("SDP", 1e-3))}
    cells: list[Cell] = []
    for model, terms in chosen.items():
        for name, strength in terms:
            cells.append({"model": model, "term": name, "strength": strength, "seed": SEED})
    return cells


def _policy_cells(setup: Setup) -> list[Cell]:
    terms = POLICIES[:1] if setup.scale == "tiny" else POLICIES
    return [{"term": name, "strength": strength, "seed": SEED} for name, strength in terms]


def _measure(setup: Setup, cell: Cell) -> Cell:
    torch.set_num_threads(1)
    data = runs.load_data(setup.data, setup.scale == "tiny")
    torch.manual_seed(cell["seed"])
    model = runs.MODELS[cell["model"]](data.shape)
    epochs = EPOCHS[setup.scale]
    seconds = runs.train(model, data, cell["term"], cell["strength"], epochs, cell["seed"])
    model.eval()
    attacked = runs.attacked_accuracy(model, data, ATTACK_RADIUS, ATTACKED[setup.scale])
    found = {
        "accuracy": runs.accuracy(model, data.x_test, data.y_test),
        "constant": runs.margin_constant(model, data),
        "attacked": attacked,
        "train_seconds": round(seconds, 1),
    }
    certified = runs.certified_accuracy(model, data, RADII, CERTIFIED[setup.scale])
    for radius, share in certified.items():
        found[f"certified_{radius:g}"] = share
    return found


def _measure_policy(setup: Setup, cell: Cell) -> Cell:
    torch.set_num_threads(1)
    model, error = runs.pendulum_policy(
        cell["term"], cell["strength"], POLICY_EPOCHS[setup.scale], cell["seed"]
    )
    bound = lipopt.bound(model, method="sdp", samples=1000)
    return {"error": error, "constant": bound.upper, "lower": bound.lower}


def _tables(setup: Setup, rows: Sequence[Row], policies: Sequence[Row]) -> str:
    radii = " / ".join(f"{radius:g}" for radius in RADII)
    lines = [
        "| network | term of the loss | strength | test accuracy | l_inf constant of margin 3-8"
        f" | certified at {radii} | attacked at {ATTACK_RADIUS:g} | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        certified = " / ".join(f"{100 * float(row[f'certified_{r:g}']):.0f}" for r in RADII)
        lines.append(
            f"| {row['model']} | {row['term']} | {float(row['strength']):g}"
            f" | {100 * float(row['accuracy']):.1f} % | {float(row['constant']):.1f}"
            f" | {certified} % | {100 * float(row['attacked']):.1f} % | {row['train_seconds']} |"
        )
    lines += ["", "| policy: term | strength | error | l_inf constant | lower bound |"]
    lines.append("|---|---|---|---|---|")
    for row in policies:
        lines.append(
            f"| {row['term']} | {float(row['strength']):g} | {float(row['error']):.4f}"
            f" | {float(row['constant']):.2f} | {float(row['lower']):.2f} |"
        )
    source = "MNIST" if setup.data is not None else "scikit-learn's digits"
    return "\n".join(
        [*lines, "", f"`{setup.command}` on {source}, seed {SEED}, {date.today()}", ""]
    )


def _draw_constants(setup: Setup, rows: Sequence[Row], policies: Sequence[Row]) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for row in rows:
        if row["model"] == "dense":
            _point(axes[0], row, 100 * float(row["accuracy"]))
    axes[0].set(xlabel="test accuracy, %", ylabel="constant of margin 3-8", yscale="log")
    for row in policies:
        _point(axes[1], row, float(row["error"]))
    axes[1].set(xlabel="error of the policy", ylabel="constant")
    _legend(axes[0])
    caption = "The proved l_inf constant against what it costs: dense networks, and policies for a pendulum."
    save(figure, setup, "training_constant", caption)


def _point(axes: Any, row: Row, x: float) -> None:
    name = row["term"]
    axes.plot([x], [float(row["constant"])], linestyle="none", label=name, **LOOK[name])


def _draw_certified(setup: Setup, rows: Sequence[Row]) -> None:
    figure, axes = plt.subplots(figsize=(4.5, 3.2), layout="constrained")
    for row in rows:
        if row["model"] != "dense":
            continue
        shares = [100 * float(row[f"certified_{radius:g}"]) for radius in RADII]
        axes.plot(
            [0, *RADII],
            [100 * float(row["accuracy"]), *shares],
            label=row["term"],
            **LOOK[row["term"]],
        )
    axes.set(xlabel="radius", ylabel="certified accuracy, %")
    _legend(axes)
    caption = (
        "Certified accuracy of the dense networks against the radius; at 0, the test accuracy."
    )
    save(figure, setup, "training_certified", caption)


def _legend(axes: Any) -> None:
    """Every term once."""
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    axes.legend(once.values(), once.keys(), fontsize=7)
