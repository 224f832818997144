"""The documentation is true where a machine can tell: examples run, links and names lead somewhere."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import tomllib
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import lipopt
from lipopt.training import Penalty

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = {page: re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) for page in PAGES}
WITH_EXAMPLES = [page for page in PAGES if EXAMPLES[page]]
page_by_page = pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])

# Where paths in the pages may start, and the folders by which they are known to be paths.
PATH_ROOTS = (ROOT, ROOT / "src" / "lipopt")
FOLDERS = sorted({p.name for root in PATH_ROOTS for p in root.iterdir() if p.is_dir()})
PATH = re.compile(rf"(?<![\w./*-])(?:\.\./)?((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*\w/?)")
DOTTED = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(.*\))?", re.DOTALL)
# Dotted words that are no names of this project: other packages, files of the user, parts of files.
FOREIGN = {"torch", "nn", "i", "step", "task"}
USER_FILES = {"npy", "npz", "onnx", "gz", "cert", "safetensors"}

# Public names whose docstrings explain every argument and have an example.
DOCUMENTED = ["Ball", "Box", "Boxes", "LiPopt", "LowerBound", "Network", "Result", "SDP"]
DOCUMENTED += [
    "Row",
    "Verdict",
    "Verdicts",
    "bound",
    "certified_radius",
    "certify",
    "compare",
    "load",
]
DOCUMENTED += ["local_bounds", "lower_bound"]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # that exporters of torch give
@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=[p.name for p in WITH_EXAMPLES])
def test_examples(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of a page, one after the other: later ones may go on from earlier ones."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in EXAMPLES[page]:
        exec(compile(code, page.name, "exec"), names)


def test_there_is_an_example_in_the_readme() -> None:
    assert EXAMPLES[ROOT / "README.md"]


def test_the_reference_has_every_public_name() -> None:
    shown = re.findall(r"^::: lipopt\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert sorted(shown) == lipopt.__all__


def test_the_page_on_the_architecture_has_every_module() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    sources = ROOT / "src"
    modules = [path.relative_to(sources / "lipopt") for path in (sources / "lipopt").rglob("*.py")]
    modules += [path.relative_to(ROOT) for path in (sources / "lipcheck").rglob("*.py")]
    missing = []
    for module in modules:
        is_in_folder = len(module.parts) > 2 and f"`{module.parent}/`" in page
        if not (module.name.startswith("__") or is_in_folder or f"`{module}`" in page):
            missing.append(str(module))
    assert missing == []


def test_the_website_has_every_page() -> None:
    """What is not in its navigation would be built, but nobody would find it."""
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert not [page.name for page in PAGES if f": {page.relative_to(ROOT)}\n" not in navigation]


@page_by_page
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*)(?:#([^)]+))?\)", page.read_text()):
        place = page.parent / target if target else page
        assert place.exists(), target
        if anchor:
            assert anchor in _anchors(place.read_text()), f"{target}#{anchor}"


def _anchors(text: str) -> set[str]:
    """The names by which the headings of a page are linked to."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    kept = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in kept}


@page_by_page
def test_paths_exist(page: Path) -> None:
    """Everything in a page that looks like a path into the repository.

    What is installed in .venv is not part of it, and depends on what was installed."""
    outside_links = re.sub(r"\]\([^)]*\)", "]", page.read_text())
    missing = [
        path
        for path in PATH.findall(outside_links)
        if not path.startswith(".venv/") and not any((root / path).exists() for root in PATH_ROOTS)
    ]
    assert not missing


@page_by_page
def test_names_exist(page: Path) -> None:
    """Everything in a page that looks like a name in the code: `lipopt.load`, `methods.auto.Auto`, `Dual.fit`."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    quoted = [DOTTED.fullmatch(code) for code in re.findall(r"`([^`]+)`", text)]
    names = {match.group(1) for match in quoted if match}
    names |= set(re.findall(r"(?<![\w/])(?:lipopt|lipcheck)(?:\.[A-Za-z_]\w*)+", page.read_text()))
    assert not [name for name in sorted(names) if not _is_foreign(name) and not _resolves(name)]


def _is_foreign(name: str) -> bool:
    first, *_, last = name.split(".")
    return first in FOREIGN or last in USER_FILES


def _resolves(name: str) -> bool:
    """Whether a dotted name is a file, or leads from a module of lipopt or a class to an attribute."""
    if any((root / name).is_file() for root in PATH_ROOTS) or name in _files():
        return True
    first, rest = name.split(".", 1)
    starts: list[Any] = [import_module(module) for module in _classes().get(first, ())]
    if any(_leads(getattr(start, first), rest) for start in starts):
        return True
    if first in ("lipopt", "lipcheck"):
        return _leads(import_module(first), rest)
    return _leads(lipopt, name)


def _leads(start: Any, path: str) -> bool:
    """Whether attributes lead from an object along a path; modules are imported on the way."""
    for name in path.split("."):
        if inspect.ismodule(start) and not hasattr(start, name):
            try:
                start = import_module(f"{start.__name__}.{name}")
            except ImportError:
                return False
        elif hasattr(start, name):
            start = getattr(start, name)
        else:  # a field of a dataclass without a default is no attribute of the class
            return is_dataclass(start) and name in {field.name for field in fields(start)}
    return True


@cache
def _files() -> set[str]:
    """The names of all source files: a page may say `dual.py` next to a link."""
    return {path.name for path in (ROOT / "src").rglob("*.py")}


@cache
def _classes() -> dict[str, list[str]]:
    """The classes of both packages, and the modules that define them."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(module.removesuffix(".__init__"))
    return found


@pytest.mark.parametrize("name", ["Dual.is_proved", "lipopt.nothing", "problem.DerivativeProblem"])
def test_a_name_that_is_gone_is_noticed(name: str) -> None:
    assert not _resolves(name)
    assert not _is_foreign(name)


@page_by_page
def test_a_sentence_is_a_line(page: Path) -> None:
    """No line of prose goes on after the end of a sentence; tables and code may."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    lines = [line for line in prose.split("\n") if not line.startswith(("|", "    ", "!["))]
    assert not [line for line in lines if re.search(r"[a-z)]{3}[.?!] [A-Z][a-z]+ [a-z]", line)]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_docstring(name: str) -> None:
    """A public docstring names every argument and field, and its examples run."""
    subject = getattr(lipopt, name)
    text = subject.__doc__
    parameters = [p for p in inspect.signature(subject).parameters if p != "self"]
    assert not [p for p in parameters if not re.search(rf"^ +{p}: ", text, re.MULTILINE)]
    assert "\n    Examples:\n" in text  # the heading by which the website knows what is code
    tests = doctest.DocTestFinder().find(subject, name, globs={"lipopt": lipopt})
    assert any(test.examples for test in tests)
    for test in tests:
        assert doctest.DocTestRunner().run(test).failed == 0


def test_docstring_of_the_penalty() -> None:
    """The one public name that needs PyTorch; what its methods take is documented too."""
    for subject in (Penalty, Penalty.forward, Penalty.refine, Penalty.certified):
        text = subject.__doc__ or ""
        parameters = [p for p in inspect.signature(subject).parameters if p != "self"]
        assert not [p for p in parameters if not re.search(rf"^ +{p}: ", text, re.MULTILINE)]
    tests = doctest.DocTestFinder().find(Penalty, "Penalty")
    assert any(test.examples for test in tests)
    for test in tests:
        assert doctest.DocTestRunner().run(test).failed == 0


def test_the_details_of_results_are_described() -> None:
    """Every key that a method or an entry point puts into `details` stands in the docstring of Result."""
    described = set(re.findall(r"^ +(\w+): ", lipopt.Result.__doc__ or "", re.MULTILINE))
    used = set()
    for path in sorted((ROOT / "src" / "lipopt").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            used |= _detail_keys(node)
    assert used, "no details are found: they are made in another way now"
    assert used <= described


def _detail_keys(node: ast.AST) -> set[str]:
    """The keys of a dictionary that is assigned to `details`, given as it, or returned by `_details`."""
    value: ast.AST | None = None
    if isinstance(node, ast.keyword) and node.arg == "details":
        value = node.value
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == "details" for target in targets):
            value = node.value
    elif isinstance(node, ast.FunctionDef) and node.name == "_details":
        value = node
    if value is None:
        return set()
    outer = [d for d in ast.walk(value) if isinstance(d, ast.Dict)]
    inner = {id(d) for o in outer for v in o.values for d in ast.walk(v) if isinstance(d, ast.Dict)}
    return {
        key.value
        for found in outer
        if id(found) not in inner
        for key in found.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def test_the_readme_of_a_package_index_has_no_links_into_the_repository() -> None:
    """What the build makes of the README; on an index, a relative link would lead nowhere."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = (ROOT / "README.md").read_text()
    for step in hook["substitutions"]:
        text = re.sub(step["pattern"], step["replacement"], text)
    assert "Which method should I use?" in text
    assert not re.findall(r"\]\((?!https?:)[^)]*\)", text)


def test_the_citation_has_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {project['version']}\n" in citation
    assert f"\ntitle: {project['name']}\n" in citation
