# Two commands to start with: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
ARTIFACT := build/smollm2
DRAFT := assets/smollm2-draft
SOURCES := $(shell find src/kern -type f -not -name '*.pyc')
MINUTES ?= 10
PROMPT ?= The three most important inventions of the nineteenth century were

.PHONY: demo test test-slow test-aarch64 test-gpu fuzz lint unit format docs wheel clean

BUILD_DEMO = $(BIN)/kern build smollm2 --draft $(DRAFT) --target host --force -o $(ARTIFACT)

# A folder that this kern cannot run with the draft, made by an older kern or without the draft, is built again.
demo: .venv/installed $(ARTIFACT)/manifest.json
	@$(BIN)/kern run $(ARTIFACT) --spec --prompt-ids 0 --max-tokens 1 --quiet >/dev/null 2>&1 || $(BUILD_DEMO)
	@$(BIN)/kern verify $(ARTIFACT) --target host
	@$(BIN)/kern run $(ARTIFACT) --prompt "$(PROMPT)" --max-tokens 96
	@echo; echo "The same again with the draft model; accepted drafts are in brackets:"; echo
	@$(BIN)/python examples/speculation/show.py $(ARTIFACT) "$(PROMPT)"

# A folder made by an older kern or with an older draft is built again.
$(ARTIFACT)/manifest.json: $(SOURCES) $(wildcard $(DRAFT)/*) | .venv/installed
	@$(BUILD_DEMO)

test: lint unit

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

unit: .venv/installed-dev
	$(BIN)/pytest -n auto --maxprocesses 8 --dist loadfile -m "not slow and not gpu and not aarch64"

test-slow: .venv/installed-dev
	$(BIN)/pytest -m "slow and not gpu and not aarch64"

# Host kernels for aarch64, cross-compiled and run under qemu: apt install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user.
test-aarch64: .venv/installed-dev
	$(BIN)/pytest -m aarch64

# build/test-gpu.json then says what passed, on which card and at which commit.
test-gpu: .venv/installed-dev
	$(BIN)/pytest -m gpu --record build/test-gpu.json

# Findings go to build/fuzz. Without SEED, each run uses a new one.
fuzz: .venv/installed-dev
	PYTHONPATH=tests $(BIN)/python -m fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

format: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/installed-dev
	$(BIN)/python docs/generate.py

wheel: .venv/installed-dev
	$(BIN)/pip wheel -q --no-deps -w dist .

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/pip
	$(BIN)/pip install -q -e '.[gguf]'
	@$(BIN)/python -m compileall -q src
	@touch $@

.venv/installed-dev: pyproject.toml | .venv/bin/pip
	$(BIN)/pip install -q -e '.[gguf,dev]'
	@$(BIN)/python -m compileall -q src
	@touch $@ .venv/installed
