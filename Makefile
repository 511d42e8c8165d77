# Every target sets up what it needs in .venv, from a bare python3 (3.11 or later).

PYTHON ?= python3
ARGS   ?=

VENV := .venv
BIN  := $(VENV)/bin

# Packages that need nothing but to be importable, for `demo`; everything, for the rest.
CREATED := $(VENV)/.created
CORE    := $(VENV)/.core
FULL    := $(VENV)/.full
DOCS    := $(VENV)/.docs
RELEASE := $(VENV)/.release
PIP     := $(BIN)/python -m pip install --quiet

# Tests run one worker a core: more BLAS threads would only get in each other's way.
ONE_BLAS_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

# Each worker starts with a half of the tests, in order, so that fixtures of a module are made once;
# a worker that has finished takes tests from the others.
PYTEST := $(ONE_BLAS_THREAD) $(BIN)/python -m pytest -n auto --dist worksteal

# Many tests start processes, and each of them would compile all of src again.
unexport PYTHONDONTWRITEBYTECODE

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
export PIP_NO_INPUT := 1

# PyTorch without CUDA, for the tests of the operator. What PyPI has brings gigabytes of CUDA, and is not asked for; the CPU build is
# on PyTorch's own index (PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu).
CPU_TORCH := torch==2.13.0+cpu

CHECKED = $(wildcard src tests tools benchmarks $(if $(wildcard examples/*.py),examples))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all test-quick test-gpu conformance-mutants mutants ptx-agreement ptx-mutants ptx-planted snapshot lint format site dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(CORE) ## simulate and verify a warp-specialised GEMM; no GPU needed
	@$(BIN)/tilepipe demo --timeline demo.html $(ARGS)

test: $(FULL) ## run the suite, a worker a core (ARGS="-k name" to choose)
	$(PYTEST) -m "not thorough" $(ARGS)

test-all: $(FULL) ## run the suite and what proves it again over many more cases
	$(PYTEST) $(ARGS)

test-quick: $(FULL) ## run a sample of what is fast, in about a minute
	$(PYTEST) --ignore=tests/gpu -m "not slow and not thorough and not gpu" $(ARGS)

test-gpu: $(FULL) ## run tests/gpu on this machine's GPU, and print a table
	$(BIN)/python tests/gpu/run.py $(ARGS)

conformance-mutants: $(FULL) ## take each member of the conformance table out, or change it a little, and see a test fail
	$(BIN)/python -m tests.conformance.mutate $(ARGS)

mutants: $(FULL) ## mutate every kernel and example, check each mutant, and write docs/generated/mutants.md (about half an hour)
	$(ONE_BLAS_THREAD) $(BIN)/python -m tests.mutation.run --out docs/generated/mutants.md $(ARGS)

ptx-mutants: $(FULL) ## change printed PTX, an instruction or a bit at a time, see what its reader notices, and write docs/generated/ptx-mutants.md (hours; ARGS="--sample 13": ten minutes)
	$(ONE_BLAS_THREAD) $(BIN)/python -m tests.mutation.ptx.run --out docs/generated/ptx-mutants.md $(ARGS)

ptx-agreement: $(FULL) ## compare verdicts on programs and on their printed PTX, and write docs/generated/ptx-agreement.md (hours; ARGS="--results FILE" to go on later)
	$(ONE_BLAS_THREAD) $(BIN)/python -m tests.mutation.agreement.run --out docs/generated/ptx-agreement.md $(ARGS)

ptx-planted: $(FULL) ## plant mistakes in the reader of PTX, see what notices them, and write docs/generated/ptx-planted.md (minutes)
	$(ONE_BLAS_THREAD) $(BIN)/python -m tests.mutation.reader.run --out docs/generated/ptx-planted.md $(ARGS)

snapshot: $(FULL) ## compare what this tree prints, computes and proves with tests/golden/snapshot.json (three minutes)
	$(BIN)/python -m tools.snapshot compare tests/golden/snapshot.json $(ARGS)

lint: $(FULL) ## ruff check, ruff format --check, mypy --strict
	$(BIN)/python -m ruff check $(CHECKED)
	$(BIN)/python -m ruff format --check $(CHECKED)
	$(BIN)/python -m mypy --strict $(CHECKED)

format: $(FULL) ## let ruff fix and format
	$(BIN)/python -m ruff check --fix $(CHECKED)
	$(BIN)/python -m ruff format $(CHECKED)

site: $(DOCS) ## build the documentation as a site, build/site/index.html; a warning is an error
	$(BIN)/python -m tools.site

dist: $(RELEASE) ## build wheel and sdist, build/dist, and try them in clean environments of each Python that is here (ARGS="3.12 3.13" to choose)
	$(BIN)/python -m tools.release $(ARGS)

clean: ## remove the venv, caches and build output
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find $(CHECKED) -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written only after its step succeeded, so an interrupted set-up starts over.
$(CREATED):
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"tilepipe needs Python 3.11 or later; $(PYTHON) is {v[0]}.{v[1]}: try make PYTHON=python3.12")'
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(CORE): $(CREATED) pyproject.toml
	@$(PIP) --editable .
	@touch $@

$(FULL): $(CREATED) pyproject.toml
	@echo "installing what tests and lint need (once, about a minute)"
	@$(PIP) --editable '.[test,dev]'
	@$(PIP) '$(CPU_TORCH)' 2>/dev/null || echo "no $(CPU_TORCH) to be had: the tests of ops.matmul on PyTorch tensors will skip"
	@touch $(CORE) $@

$(DOCS): $(CREATED) pyproject.toml
	@$(PIP) --editable '.[docs]'
	@touch $(CORE) $@

$(RELEASE): $(CREATED) pyproject.toml
	@$(PIP) --editable '.[release]'
	@touch $(CORE) $@
