# On a fresh machine: `make demo`, `make test`, `make docs`. What they set up first, scripts/set_up.py says.
# TORCH=… chooses another torch (arguments of pip install), MODEL=… another model for the demo (a folder or a hub id).
PYTHON ?= python3
BIN := .venv/bin
CORE := $(wildcard native/*.cpp native/*.h */core/*.cpp */core/*.h)
export TORCH MODEL

.PHONY: demo test docs check format wheels clean

demo: .venv/core.stamp
	@echo "Loading $(or $(MODEL),the bundled model) …"
	@$(BIN)/python scripts/demo.py

test: .venv/test.stamp .venv/core.stamp
	scripts/check
	scripts/test

docs: .venv/docs.stamp .venv/core.stamp
	$(BIN)/python scripts/docs_site/build_site.py

check: .venv/test.stamp .venv/core.stamp
	scripts/check

format: .venv/test.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheels: .venv/run.stamp
	$(BIN)/python scripts/build_wheels.py

.venv/run.stamp: pyproject.toml setup.py scripts/set_up.py
	$(PYTHON) scripts/set_up.py
	touch $@

.venv/test.stamp: .venv/run.stamp
	$(PYTHON) scripts/set_up.py test
	touch $@

.venv/docs.stamp: .venv/run.stamp
	$(PYTHON) scripts/set_up.py docs
	touch $@

.venv/core.stamp: .venv/run.stamp $(CORE)
	$(BIN)/python setup.py -q build_ext --inplace
	touch $@

clean:
	rm -rf .venv build dist *.egg-info src/*.egg-info _core*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis
