# The few things one does with this repository. All they make lies below the clone.
PYTHON ?= python3
PORT ?= 8080
NATS_PORT ?= 4222
PIP = .venv/bin/python -m pip --quiet --disable-pip-version-check

.PHONY: run cluster test lint page bench soak clean

run: .venv/.installed ## serve with a NATS of its own; PORT=0 takes a free port
	@.venv/bin/ringmere serve --embedded --data-dir .data --listen 127.0.0.1:$(PORT)

cluster: .venv/.installed ## three NATS nodes in the foreground; NATS_PORT is the first of their ports, 0 takes free ones
	@.venv/bin/python -m ops.nats.cluster --port $(NATS_PORT)

test: .venv/.installed-dev ## all tests, a few files at a time: most of them wait for processes; ARGS=-n0 for one at a time
	@mkdir -p .tmp
	TMPDIR="$(CURDIR)/.tmp" .venv/bin/pytest -n 3 --dist loadfile $(ARGS)

lint: .venv/.installed-dev ## style, types, and the floors
	.venv/bin/ruff check service tests ops
	.venv/bin/ruff format --check service tests ops
	.venv/bin/mypy
	.venv/bin/lint-imports

page: .venv/.installed-dev ## the page's tests in Chromium
	@mkdir -p .tmp
	TMPDIR="$(CURDIR)/.tmp" .venv/bin/pytest tests/page $(ARGS)

bench: .venv/.installed-dev ## Ringmere against a plain gateway, in one run
	.venv/bin/python -m ops.bench $(ARGS)

soak: .venv/.installed-dev ## half an hour of churn; memory and tasks must end as they began
	.venv/bin/python -m ops.soak $(ARGS)

clean: ## everything that the other targets made
	rm -rf .venv .data .tmp .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	rm -rf tests/foreign/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) install -e '.[embedded]'
	@touch $@

.venv/.installed-dev: pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) install -e '.[dev]'
	@touch .venv/.installed $@
