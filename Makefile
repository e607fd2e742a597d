# Two commands on a machine with Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Compiled modules are kept: otherwise each of some hundred processes of the tests compiles ours again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-quick test-full test-lowest check docs clean

demo: $(VENV)/.installed
	$(BIN)/latentscale demo --output demo-output

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m "not full" -n 3 --dist worksteal

# While writing: what needs no processes and no compilation.
QUICK := $(addprefix tests/pipeline/,cli compare config history metrics report results rows views)
test-quick: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m "not full and not slow" -n 2 -q \
		tests/test_architecture.py tests/latentscale/sampling tests/latentscale/vendi $(QUICK)

test-full: $(VENV)/.installed-test
	$(BIN)/python tests/acceptance/run.py

# The tests at the lowest versions that pyproject.toml allows; best with PYTHON=python3.11.
test-lowest:
	$(PYTHON) -m venv --clear $(VENV)/lowest
	$(VENV)/lowest/bin/python -m pip install --quiet uv
	$(VENV)/lowest/bin/uv pip install --quiet --python $(VENV)/lowest/bin/python \
		--resolution lowest-direct --editable ".[test]"
	$(VENV)/lowest/bin/python -m pytest -m "not full" -n 2 --dist worksteal

check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site, in docs/_build: warnings are errors, and no network is needed.
docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs docs/_build

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) demo-output docs/_build docs/python/generated
