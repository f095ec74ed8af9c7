# Every task of this project, by one word each; `make` alone lists them.

.DEFAULT_GOAL := help
BIN := .venv/bin

help: ## list these targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-14s %s\n' "$$name" "$$text"; done

setup: ## prepare .venv to run Headroom
	@tools/setup run

setup-dev: ## prepare .venv for tests and checks too
	@tools/setup dev

setup-bench: ## prepare .venv-bench, the peers that some benchmarks compare with
	@tools/setup bench

demo: setup ## run the operator on a simulated cluster; for example ARGS="--port 9000"
	@$(BIN)/headroom demo $(ARGS)

control-plane: ## build the control plane for the tests, once (about ten minutes on two cores)
	@tools/control-plane

test: setup-dev ## run all tests; ARGS="..." goes to pytest
	@tools/test $(ARGS)

test-deep: setup-dev ## the same with every case of the large tables, every seed and the largest fuzz (twice as long)
	@HEADROOM_DEEP=1 tools/test $(ARGS)

test-kueue: setup-dev ## budgets beside the real Kueue and JobSet, which are built first, once (five minutes of CPU); in no other target
	@tools/control-plane >/dev/null && tools/kueue/build >/dev/null
	@$(BIN)/pytest -q tests/kueue $(ARGS)

check: setup-dev ## format, lint, types, layers, house rules, generated files
	$(BIN)/ruff format --check src tests bench
	$(BIN)/ruff check src tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/test_tidy.py
	$(BIN)/python -m headroom.api.generate --check
	$(BIN)/python -m bench.figures --check

fmt: setup-dev ## format the code and mend what the linter can mend
	$(BIN)/ruff format src tests bench
	$(BIN)/ruff check --fix src tests bench

generate: setup ## write the generated files: CRDs, field reference, figures in the pages
	$(BIN)/python -m headroom.api.generate
	$(BIN)/python -m bench.figures

lock: ## write requirements/*.txt anew; ARGS=--upgrade moves to the newest versions
	@tools/lock $(ARGS)

bench: setup-dev ## run one benchmark: make bench NAME=...; without NAME, list them
ifdef NAME
	@$(BIN)/python -m bench.$(NAME) $(ARGS)
else
	@for file in $(filter-out %/__init__.py %/results.py %/figures.py,$(wildcard bench/*.py)); do \
		printf '  make bench NAME=%-16s %s\n' "$$(basename "$$file" .py)" "$$(sed -nE '1s/"""//gp' "$$file")"; done
endif

screenshots: setup-dev ## take the pictures of the dashboard in docs/images anew (about three minutes)
	@tools/screenshots

chaos: setup-dev ## kill the operator in the middle of its accounting, on a real control plane (about three minutes)
	@$(BIN)/python -m bench.accuracy --only killed $(ARGS)

clean: ## remove what was made in this folder (the built control plane stays in its cache)
	rm -rf .venv .venv-bench .venv-lock .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist src/headroom/web/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help setup setup-dev setup-bench demo control-plane test test-deep test-kueue check fmt generate lock bench screenshots chaos clean
