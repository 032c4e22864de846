# Everything a checkout can do. Needs Python 3.11 or newer and, for the tests and the linter, Node 20 or newer.
# ARGS goes to pytest, the benchmark and the notebook: make test ARGS='tests/unit -k results'
# The tests marked `timed` run one by one after all others: TIMED=no leaves them out, TIMED=only runs nothing else.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
BIN := .venv/bin
CORES := $(shell $(PYTHON) -c 'import os; print(os.cpu_count())')
# Most tests wait for a server or a kernel, so twice as many run as there are cores; a browser keeps a core busy.
WORKERS := $(shell echo $$((2 * $(CORES))))
ENVIRONMENTS := $(BIN)/python tests/environments.py
PYTEST := $(BIN)/python -m pytest
# A file is never split: its tests may share a kernel, and always run in the same order.
# In the order of the folders: the unit tests, which take least, come last and fill up what the long files leave.
PARALLEL := --dist loadfile --no-loadscope-reorder
# $(call run_tests,FOLDER,WORKERS,MARKS): a tier's tests in parallel, then the timed ones; or what ARGS selects of them.
define run_tests
$(if $(ARGS),$(PYTEST) $(1) -m '$(3)' $(ARGS))
$(if $(ARGS)$(filter only,$(TIMED)),,$(PYTEST) $(1) -n $(2) $(PARALLEL) -m '$(3) and not timed')
$(if $(ARGS)$(filter no,$(TIMED)),,$(PYTEST) $(1) -m '$(3) and timed')
endef
# Each process that runs tests would otherwise compile them, and what they import, every time.
unexport PYTHONDONTWRITEBYTECODE
# Name what .venv and node_modules were made from: other requirements are another stamp, other settings of a tool are not.
STAMP := .venv/.made-from-$(shell sed '/^\[tool/,$$d' pyproject.toml | cksum | cut -d ' ' -f 1)
NODE_STAMP := labextension/node_modules/.made-from-$(shell cksum labextension/package-lock.json | cut -d ' ' -f 1)
# The front end is checked again when one of these has changed; a folder has, when something in it came or went.
FRONTEND := $(shell find labextension ipymcp/labextension ipymcp/panel \( -name node_modules -o -name lib -o -name __pycache__ \) -prune -o -print)
FRONTEND_STAMP := labextension/node_modules/.checked

.PHONY: demo lab test coverage frontend browser nightly conformance docs interop lint bench test-envs all-envs clean help

help:  ## show this
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(STAMP)  ## run the quickstart notebook: load a server, call its tools
	@$(BIN)/python examples/run.py examples/quickstart.ipynb $(ARGS)
	@echo; echo "That was examples/quickstart.ipynb. To have it in your own Jupyter: pip install . in its environment."

lab:  ## open JupyterLab on the examples, in an environment of its own (a minute or two the first time)
	@$(PYTHON) tests/environments.py browser
	.envs/browser/bin/python -m jupyterlab examples $(ARGS)

test: test-envs  ## make the environments of the test servers and kernels, and run the tests
	$(call run_tests,,$(WORKERS),not nightly)

coverage: test-envs  ## run the tests once more, and report which lines of ipymcp/ they reach
	COVERAGE_CORE=$$($(BIN)/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")') \
		$(PYTEST) -n $(WORKERS) $(PARALLEL) -m 'not nightly and not timed' --cov --cov-report=term --cov-report=html:build/coverage $(ARGS)

test-envs: $(STAMP)  ## make those environments only
	@echo "test servers and kernels in .envs (some minutes the first time):"
	@$(ENVIRONMENTS) --tier test

all-envs: $(STAMP)  ## make those and the ones of the tests in a browser
	@$(ENVIRONMENTS) --tier test --tier browser
	@$(BIN)/python -m tests.browser.chromium

frontend: $(FRONTEND_STAMP)  ## check and test the panel's TypeScript, and that what is committed is what it builds

browser: $(STAMP)  ## try the panel in Chromium: JupyterLab, Notebook 7 and Voilà (some minutes)
	@$(ENVIRONMENTS) --tier browser models
	@$(BIN)/python -m tests.browser.chromium
	$(call run_tests,tests/browser,$(CORES),not nightly)

nightly: all-envs  ## test older kernels, JupyterLab 4.0, JupyterHub, a local model, third-party servers
	@$(ENVIRONMENTS) --tier nightly
	$(call run_tests,,$(WORKERS),nightly)
	$(PYTEST) tests/browser -n $(CORES) $(PARALLEL) -m nightly $(ARGS)

docs: $(STAMP)  ## build the documentation site in build/site, without a warning or a broken link
	@$(ENVIRONMENTS) --tier docs
	@NO_MKDOCS_2_WARNING=1 .envs/docs/bin/python -m mkdocs --quiet build --strict --clean
	@echo "open build/site/index.html"

conformance: $(STAMP)  ## run the official suite for clients: both scored sets (some minutes)
	@$(ENVIRONMENTS) --tier conformance
	$(BIN)/python -m tests.conformance $(ARGS)

interop: $(STAMP)  ## test third-party servers, and write docs/interoperability.md (needs 2 GB in .envs)
	@$(ENVIRONMENTS) npm mcp-proxy 'server-*' 'sdk*' 'interop/*'
	$(PYTEST) tests/interop --write-page $(ARGS)

lint: $(STAMP)  ## check style, types, layers, and that protocol.ts is what the kernel's types make
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python labextension/protocol.py --check

bench: $(STAMP)  ## measure ipymcp beside the official SDK, fastmcp, mcp-use and langchain-mcp-adapters
	@$(ENVIRONMENTS) --tier bench sdk2 peer-fastmcp
	$(BIN)/python -m benchmarks.run $(ARGS)

$(STAMP):
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer was not found on the PATH; name it: make PYTHON=..." >&2; exit 1; }
	@echo "ipymcp and what its tests need in .venv (a minute or two the first time) ..."
	@rm -rf .venv
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq uv
	@$(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python --editable '.[test,lint]'
	@touch $@

$(FRONTEND_STAMP): $(STAMP) $(NODE_STAMP) $(FRONTEND)
	$(BIN)/python labextension/protocol.py --check
	cd labextension && npm run check && npm test
	@touch $@

$(NODE_STAMP):
	@node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || { echo "Node 20 or newer is needed." >&2; exit 1; }
	@echo "what builds and tests the front end in labextension/node_modules (a minute the first time) ..."
	@cd labextension && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

clean:  ## remove all that was made
	rm -rf .venv .envs labextension/node_modules labextension/lib build dist .coverage* .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
