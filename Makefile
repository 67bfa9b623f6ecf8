# Two commands on a fresh machine: `make demo` and `make test`.
# torch is pinned, so that a CPU machine gets one wheel that works and no gigabytes of CUDA by accident;
# set TORCH to another requirement (TORCH=torch) for a CUDA build.
TORCH ?= torch==2.13.0
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check format clean

demo: .venv/run.stamp
	$(BIN)/python scripts/demo.py

test: .venv/test.stamp
	scripts/check
	scripts/test

check: .venv/test.stamp
	scripts/check

format: .venv/test.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/run.stamp: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	$(BIN)/python -m phloem.runtime.warm_up
	touch $@

.venv/test.stamp: .venv/run.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[test]"
	touch $@

clean:
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
