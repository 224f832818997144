# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
PACKAGE ?= .
PAGES := *.md CITATION.cff docs spec examples experiments src notebooks
EDITABLE := $(if $(filter .,$(PACKAGE)),-e)

.PHONY: demo test nightly experiments lint docs build release clean

demo: $(VENV)/.core ## bound the networks that ship with lipopt
	$(BIN)/lipopt demo

test: $(VENV)/.test ## run the tests (PACKAGE=dist/x.whl tests a built wheel)
	$(BIN)/python -m pytest -n auto

nightly: $(VENV)/.test ## thousands of random models, ten thousand mutated certificates
	$(BIN)/python -m pytest -n auto -m nightly

experiments: $(VENV)/.test ## the paper's figures and tables, in the quick form
	$(BIN)/python -m experiments all --quick

lint: $(VENV)/.dev ## style, types, one-way imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.dev ## the documentation as a website, in build/site; dead links are errors
	rm -rf build/pages && mkdir -p build/pages
	tar -c --exclude=__pycache__ --exclude='*.safetensors' $(PAGES) | tar -x -C build/pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

build: $(VENV)/.dev ## the wheel, in dist/
	rm -rf dist
	$(PIP) wheel --no-deps -w dist .

release: $(VENV)/.dev ## what would be published, in dist/, tried on every Python of this machine
	.ci/release

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(BIN)/python
	$(PIP) install $(EDITABLE) "$(PACKAGE)"
	touch $@

$(VENV)/.test $(VENV)/.dev: $(VENV)/.%: pyproject.toml | $(BIN)/python
	$(PIP) install $(EDITABLE) "$(PACKAGE)[$*]"
	touch $@

clean:
	rm -rf $(VENV) build dist
