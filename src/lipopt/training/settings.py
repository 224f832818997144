"""The options of a penalty, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from ..errors import LipoptError
from ..model.domain import check_clip
from ..model.norms import Norm
from .live import Tensor

Kind = Literal["estimate", "path-sum", "dual"]
Form = Literal["value", "square", "log", "hinge"]

KINDS = ("estimate", "path-sum", "dual")
FORMS = ("value", "square", "log", "hinge")


@dataclass(frozen=True)
class Settings:
    """The options of a penalty; `Penalty` says what they mean."""

    norm: Norm
    rank: int
    kind: Kind
    form: Form
    target: float | None
    radius: float | None
    clip: tuple[float, float] | None
    logits: bool
    cuda_graph: bool

    def __post_init__(self) -> None:
        self._check_words()
        self._check_numbers()

    def _check_words(self) -> None:
        if self.kind not in KINDS:
            raise LipoptError(f"unknown kind '{self.kind}'; use one of {', '.join(KINDS)}")
        if self.form not in FORMS:
            raise LipoptError(f"unknown form '{self.form}'; use one of {', '.join(FORMS)}")
        if (self.target is None) == (self.form == "hinge"):
            raise LipoptError("a hinge needs a target, and no other form takes one")
        if self.kind == "dual" and (self.norm is Norm.L1 or self.radius is not None):
            raise LipoptError("the dual takes linf or l2 over the whole space; use the path sum")

    def _check_numbers(self) -> None:
        if type(self.rank) is not int or self.rank < 1:
            raise LipoptError(f"the rank must be a positive whole number, got {self.rank}")
        if self.radius is not None and not 0 <= self.radius < np.inf:
            raise LipoptError(f"the radius must be a finite number >= 0, got {self.radius!r}")
        if self.clip is not None:
            if self.radius is None:
                raise LipoptError("a clip range goes with a radius")
            check_clip(self.clip)

    def formed(self, value: Tensor) -> Tensor:
        """The form of the constant that is asked for."""
        if self.form == "square":
            return value.square()
        if self.form == "log":
            return value.log()
        if self.form == "hinge":
            return torch.relu(value - self.target)
        return value
