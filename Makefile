# The same steps as .ci/run: `make setup` once, then `make check`.
.PHONY: setup check lint types layers test coverage docs wheel clean
VENV ?= .venv
RUN := $(VENV)/bin

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(RUN)/pip install --quiet --upgrade "pip>=24"
	$(RUN)/pip install --quiet -c constraints.txt -e ".[dev,bench]"
	touch $@

check: lint types layers test docs wheel

lint: setup
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .

types: setup
	$(RUN)/mypy

layers: setup
	$(RUN)/lint-imports

test: setup
	$(RUN)/pytest -n 2 --dist loadfile

# Which lines the tests run: by itself, for counting them makes tests of much Python take half as long again and more.
coverage: setup
	$(RUN)/coverage erase
	$(RUN)/pytest -n 2 --dist loadfile --cov --cov-report=
	$(RUN)/coverage report

docs: setup
	$(RUN)/mkdocs build --strict --quiet

wheel: setup
	tools/check_wheel $(RUN)/python

clean:
	rm -rf $(VENV) build dist site .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis
