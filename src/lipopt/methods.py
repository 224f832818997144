"""Methods and their register: a method is a frozen settings object that turns a Task into an UpperBound.

A module that defines one registers it, and it then has a name for `bound(method=...)`, `compare` and the command line:

    @register("path-sum")
    @dataclass(frozen=True)
    class PathSum:
        def __call__(self, task: Task) -> UpperBound: ...
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast

from .errors import LipoptError
from .problem import DerivativeProblem

Status: TypeAlias = Literal["complete", "time limit"]


def _silent(message: str, fraction: float | None = None) -> None:
    """Progress that is not shown."""


@dataclass(frozen=True, eq=False)
class Task:
    """One problem to bound, with what limits the work."""

    raw: DerivativeProblem  # as the network stands, affine nodes included
    problem: DerivativeProblem  # after presolve
    deadline: float | None = None  # on the clock of time.monotonic
    seed: int = 0
    pop_lower: float = 0.0  # a lower bound on the optimum that is known already
    progress: Callable[..., None] = _silent  # progress(message, fraction=None)
    memory: dict[str, Any] | None = None  # for what a method keeps from one problem to start a similar one of the same network
    upper: float = float("inf")  # an upper bound that is known already: what stays far above it is not worth its time

    @property
    def seconds_left(self) -> float:
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()


@dataclass(frozen=True, eq=False)
class UpperBound:
    """A proved upper bound on the optimum of a task's problem, slack included."""

    value: float
    status: Status = "complete"
    pop_lower: float | None = None  # a lower bound on the optimum, if the method found one
    certificate: Any = None  # the numbers that prove it
    details: dict[str, Any] = field(default_factory=dict)


class Method(Protocol):
    """What `bound(method=...)` accepts."""

    @property
    def name(self) -> str: ...

    def __call__(self, task: Task) -> UpperBound: ...


REGISTER: dict[str, Callable[..., Method]] = {}
M = TypeVar("M", bound=Callable[..., Any])


def register(name: str) -> Callable[[M], M]:
    """Make a settings class known by name. 'name-ARGUMENT' calls it with the argument, an integer."""

    def add(factory: M) -> M:
        REGISTER[name] = factory
        return factory

    return add


def find_method(method: str | Method, **settings: Any) -> Method:
    """The method of that name, or the settings object itself, with some of its settings changed."""
    found = _by_name(method) if isinstance(method, str) else method
    if isinstance(found, type) or not callable(found) or not is_dataclass(found):
        raise LipoptError(f"a method is a name or a settings object, got {method!r}")
    if unknown := set(settings) - {f.name for f in fields(found)}:
        raise LipoptError(f"method '{found.name}' has no setting '{unknown.pop()}'")
    return cast(Method, replace(found, **settings)) if settings else found


def _by_name(method: str) -> Method:
    if method in REGISTER:
        return REGISTER[method]()
    stem, _, argument = method.rpartition("-")
    if stem in REGISTER and argument.isdigit():
        try:
            return REGISTER[stem](int(argument))
        except TypeError as error:
            raise LipoptError(f"method '{stem}' takes no number") from error
    raise LipoptError(f"unknown method '{method}'; use one of {', '.join(sorted(REGISTER))}, or lipopt-K")
