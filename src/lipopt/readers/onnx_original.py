"""An ONNX model as a function: by onnxruntime where it is installed, or ONNX's own reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from scipy.special import erf

from ..errors import LipoptError
from ..numerics.arrays import Array

Run = Callable[[dict[str, Array]], Sequence[Any]]


def evaluator(model: onnx.ModelProto) -> Callable[[dict[str, Array]], dict[str, Array]]:
    """The function that takes a model's inputs to its outputs, both by name."""
    names = [value.name for value in model.graph.output]
    run = _runtime(model) or _reference(model)

    def evaluate(feeds: dict[str, Array]) -> dict[str, Array]:
        try:
            with np.errstate(all="ignore"):
                results = run(feeds)
        except Exception as error:  # both raise all kinds
            raise LipoptError(
                f"the model cannot be run, to compare it with what was read ({error}); installing"
                " onnxruntime may help, check=False (--no-check) leaves the comparison out"
            ) from error
        return {name: np.asarray(result) for name, result in zip(names, results, strict=True)}

    return evaluate


def _runtime(model: onnx.ModelProto) -> Run | None:
    """onnxruntime, if it is installed and takes the model."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception:  # an operator, a type or an opset that it does not have
        return None
    return lambda feeds: session.run(None, feeds)


def _reference(model: onnx.ModelProto) -> Run:
    reference = ReferenceEvaluator(model, new_ops=[BatchNormalization, Erf])
    return lambda feeds: reference.run(None, feeds)


class Erf(OpRun):  # type: ignore[misc]
    """In the precision of its input; the reference implementation rounds to single precision."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.asarray(erf(x), dtype=x.dtype),)


class BatchNormalization(OpRun):  # type: ignore[misc]
    """In evaluation mode; the reference implementation takes opsets 9 to 13 for training."""

    op_domain = ""

    def _run(
        self,
        x: Array,
        scale: Array,
        shift: Array,
        mean: Array,
        variance: Array,
        epsilon: float = 1e-5,
        **_: Any,
    ) -> tuple[Array]:
        along = (-1,) + (1,) * (x.ndim - 2)
        deviation = np.sqrt(variance.reshape(along) + epsilon)
        normal = (x - mean.reshape(along)) / deviation
        return ((scale.reshape(along) * normal + shift.reshape(along)).astype(x.dtype),)
