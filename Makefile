# The same steps as .ci/run: `make setup` once, then `make check`.
.PHONY: setup check check-all lint language types layers test coverage docs wheel wheel-complete clean
VENV ?= .venv
RUN := $(VENV)/bin

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(RUN)/pip install --quiet --upgrade "pip>=24"
	$(RUN)/pip install --quiet -c constraints.txt -e ".[dev,bench]"
	touch $@

# Everything that is not slow; with the slow tests and the lines that no test runs: check-all.
check: lint language types layers test docs wheel

check-all: lint language types layers coverage docs wheel-complete

lint: setup
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .

language: setup
	$(RUN)/python -m tools.check_language
	$(RUN)/python -m tools.check_commits

types: setup
	$(RUN)/mypy

layers: setup
	$(RUN)/lint-imports

test: setup
	$(RUN)/pytest -n 2 --dist loadfile -m "not slow"

coverage: setup
	$(RUN)/coverage erase
	$(RUN)/pytest -n 2 --dist loadfile --cov --cov-report=
	$(RUN)/coverage report

docs: setup
	$(RUN)/mkdocs build --strict --quiet

wheel: setup
	tools/check_wheel $(RUN)/python

wheel-complete: setup
	tools/check_wheel $(RUN)/python --with-dependencies

clean:
	rm -rf $(VENV) build dist site .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis
