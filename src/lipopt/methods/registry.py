"""Methods and their register: a method is a frozen settings object, a Task -> UpperBound.

A module that defines one registers it, and it then has a name for `bound(method=...)`, `compare`
and the command line:

    @register("path-sum")
    @dataclass(frozen=True)
    class PathSum:
        def __call__(self, task: Task) -> UpperBound: ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, TypeVar, cast

from ..errors import LipoptError
from ..problem.task import Task, UpperBound


class Method(Protocol):
    """What `bound(method=...)` accepts."""

    @property
    def name(self) -> str: ...

    def __call__(self, task: Task) -> UpperBound: ...


REGISTER: dict[str, Callable[..., Method]] = {}
M = TypeVar("M", bound=Callable[..., Any])


def register(name: str) -> Callable[[M], M]:
    """Make a settings class known by name.

    The name 'NAME-K' with a whole number K then stands for the class called with K."""

    def add(factory: M) -> M:
        REGISTER[name] = factory
        return factory

    return add


def find_method(method: str | Method, **settings: Any) -> Method:
    """The method of that name, or the settings object itself, with some of its settings changed."""
    found = _by_name(method) if isinstance(method, str) else method
    if isinstance(found, type) or not callable(found) or not is_dataclass(found):
        raise LipoptError(f"a method is a name or a settings object, got {method!r}")
    if not settings:
        return found
    known = {field.name for field in fields(found)}
    unknown = set(settings) - known
    if unknown:
        raise LipoptError(f"method '{found.name}' has no setting '{unknown.pop()}'")
    return cast(Method, replace(found, **settings))


def _by_name(method: str) -> Method:
    if method in REGISTER:
        return REGISTER[method]()
    stem, _, argument = method.rpartition("-")
    if stem in REGISTER and argument.isdigit():
        try:
            return REGISTER[stem](int(argument))
        except TypeError as error:
            raise LipoptError(f"method '{stem}' takes no number") from error
    known = ", ".join(sorted(REGISTER))
    raise LipoptError(f"unknown method '{method}'; use one of {known}, or lipopt-K")
