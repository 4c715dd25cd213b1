# make PYTHON=python3.12 demo: any Python from 3.11 to 3.13 that has venv
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=

.PHONY: demo test lint clean

demo: $(VENV)/.report ## five systems at four rates: a table, and a page whose path is the last line
	@$(BIN)/kvsim sweep experiment=quickstart hydra.sweep.dir=outputs/demo
	@$(BIN)/kvsim report outputs/demo -o outputs/demo/report.html

test: $(VENV)/.dev
	$(BIN)/pytest $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

$(VENV)/.report: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[report]'
	@touch $@

# tests run kernels on the CPU, in Triton's interpreter; which build of PyTorch there is does not matter
$(VENV)/.dev: $(VENV)/.report
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,sweep,tokenizer,gpu]'
	@touch $@
