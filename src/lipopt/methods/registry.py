"""Methods and their register: a method is a frozen settings object, a Task -> UpperBound.

A module that defines one registers it, and it then has a name for `bound(method=...)`, `compare`
and the command line:

    @register("path-sum")
    @dataclass(frozen=True)
    class PathSum:
        def __call__(self, task: Task) -> UpperBound: ...

Methods of other packages have names too: those of their entry points in the group GROUP, such as

    [project.entry-points."lipopt.methods"]
    their-method = "their_package:TheirMethod"

If two have the same name, lipopt's own is taken, or the one that Python finds first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, TypeVar, cast

from ..errors import LipoptError
from ..problem.task import Task, UpperBound


class Method(Protocol):
    """What `bound(method=...)` accepts."""

    @property
    def name(self) -> str: ...

    def __call__(self, task: Task) -> UpperBound: ...


def takes_network_as_given(method: Method) -> bool:
    """Whether a method wants the network without merged neurons and better intervals."""
    return bool(getattr(method, "takes_network_as_given", False))


def takes_all_rows(method: Method) -> bool:
    """Whether a method takes several outputs together where others take one at a time."""
    return bool(getattr(method, "takes_all_rows", False))


GROUP = "lipopt.methods"  # of the entry points by which other packages add methods
REGISTER: dict[str, Callable[..., Method]] = {}  # those of lipopt itself
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


def method_names() -> list[str]:
    """The names of all methods, those of other packages included."""
    return sorted({*REGISTER, *(entry.name for entry in entry_points(group=GROUP))})


def _by_name(method: str) -> Method:
    factory = _factory(method)
    if factory is not None:
        return factory()
    stem, _, argument = method.rpartition("-")
    factory = _factory(stem)
    if factory is not None and argument.isdigit():
        try:
            return factory(int(argument))
        except TypeError as error:
            raise LipoptError(f"method '{stem}' takes no number") from error
    known = ", ".join(method_names())
    raise LipoptError(f"unknown method '{method}'; use one of {known}, or lipopt-K")


def _factory(name: str) -> Callable[..., Method] | None:
    """What makes the method of that name; None if there is none."""
    if name in REGISTER:
        return REGISTER[name]
    for entry in entry_points(group=GROUP, name=name):
        return _loaded(entry)
    return None


def _loaded(entry: EntryPoint) -> Callable[..., Method]:
    """The settings class that another package's entry point names."""
    try:
        return cast("Callable[..., Method]", entry.load())
    except Exception as error:  # whatever their code does when it is imported
        package = "another package" if entry.dist is None else f"the package {entry.dist.name}"
        raise LipoptError(
            f"method '{entry.name}' of {package} cannot be imported ({error}); update that package,"
            " or name the methods to use"
        ) from error
