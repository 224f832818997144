"""The Python examples in the README and the docs run."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [(page.name, code) for page in PAGES for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]


@pytest.mark.parametrize(("page", "code"), EXAMPLES, ids=[f"{page}-{i}" for i, (page, _) in enumerate(EXAMPLES)])
def test_example(page: str, code: str) -> None:
    exec(compile(code, page, "exec"), {})


def test_there_is_an_example_in_the_readme() -> None:
    assert any(page == "README.md" for page, _ in EXAMPLES)


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
