# Everything runs in .venv, made here from nothing but Python 3.11-3.13 and make.
#   make demo   fit, compare and audit on the embedded digits, write pages     make test   run every test
# Another interpreter: make demo PYTHON=python3.12
# The very packages that were tested, by their hashes: make LOCKED=1 test

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt
DEMO := runs/demo
LOCK := requirements.lock
GROUPS := test lint docs build

.DEFAULT_GOAL := help
MINUTES ?= 30
PYTHONS ?= python3.11 python3.12 python3.13

.PHONY: help demo test coverage attack lint format docs verdicts bench lock dist try-wheel clean

help:
	@echo "make demo    compare models on digits to be remembered, audit one, write $(DEMO)/report.html"
	@echo "make test    run every test"
	@echo "make coverage  run every test and list what they miss"
	@echo "make attack  damage, kill and starve it for MINUTES=30, write docs/reliability.md"
	@echo "make lint    ruff, pyright and the import contract"
	@echo "make format  let ruff rewrite what it can"
	@echo "make docs    build the documentation into docs/_build/html, warnings are errors"
	@echo "make verdicts  write the tables of docs/experiments.md and the README from results/"
	@echo "make bench   run the benchmarks and store their results under results/"
	@echo "make lock    pin every package of every group by its hashes, in $(LOCK)"
	@echo "make dist    build sdist and wheel into dist/, with a bill of materials"
	@echo "make try-wheel  install dist/'s wheel in fresh environments of PYTHONS, write docs/reliability.md"
	@echo "make clean   remove .venv and everything that was built"

# One stamp a group of packages: a second `make` installs nothing, a changed requirement installs again.
# torch goes first and alone, held by constraints.txt, so that no later resolve can swap its build; it is large, so its
# progress is shown.
$(VENV)/stamp-pip:
	@$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else "sostenuto needs Python 3.11 to 3.13, but " + sys.executable + " is " + sys.version.split()[0] + "; run: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(if $(LOCKED),,$(RUN) -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1")
	@touch $@

# With LOCKED=1 every group comes at once, and no package whose hash is not in the lock; torch is the build of its index.
# kauri, which pysiglib needs, is published as source only.
ifdef LOCKED
$(VENV)/stamp-base: $(VENV)/stamp-pip pyproject.toml $(LOCK)
	$(RUN) -m pip install --disable-pip-version-check --require-hashes --no-deps --only-binary :all: --no-binary kauri \
	  -r $(LOCK)
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-index --no-build-isolation --editable .
	@touch $@

$(GROUPS:%=$(VENV)/stamp-%): $(VENV)/stamp-base
	@touch $@
else
$(VENV)/stamp-base: $(VENV)/stamp-pip pyproject.toml constraints.txt
	$(RUN) -m pip install --disable-pip-version-check -c constraints.txt torch
	$(INSTALL) --editable .
	@touch $@

$(GROUPS:%=$(VENV)/stamp-%): $(VENV)/stamp-%: $(VENV)/stamp-base
	$(INSTALL) --group $*
	@touch $@
endif

demo: $(VENV)/stamp-base
	$(VENV)/bin/sostenuto fit digits/noise-padded --out $(DEMO) --overwrite --budget 45s --compare stack --compare lstm
	$(VENV)/bin/sostenuto fit --out $(DEMO)/audited --overwrite --epochs 10 --audit quick
	@echo "The report is $(CURDIR)/$(DEMO)/report.html, an audited run's $(CURDIR)/$(DEMO)/audited/report.html"

# Two workers with one thread each: on two cores they would otherwise fight over them. A file's tests go to one worker,
# so that a kernel is compiled, and a model trained for a file, by one of them alone.
test: $(VENV)/stamp-test
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 --dist loadfile

coverage: $(VENV)/stamp-test
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 --dist loadfile --cov --cov-report=term

attack: $(VENV)/stamp-test
	OMP_NUM_THREADS=1 $(RUN) -m tests.attacks --minutes $(MINUTES)

# pyright reads the optional packages too, so the test group is installed beside the linters.
lint: $(VENV)/stamp-lint $(VENV)/stamp-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright
	$(VENV)/bin/lint-imports

format: $(VENV)/stamp-lint
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

docs: $(VENV)/stamp-docs
	$(RUN) -m sphinx -j auto -W --keep-going -b html docs docs/_build/html
	$(RUN) docs/check_links.py docs/_build/html
	@echo "The documentation is $(CURDIR)/docs/_build/html/index.html"

verdicts: $(VENV)/stamp-base
	$(RUN) -m sostenuto.experiments.summary
	$(RUN) docs/evidence.py

bench: $(VENV)/stamp-base
	$(VENV)/bin/sostenuto bench --out results

lock: $(VENV)/stamp-build
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11.5 --generate-hashes --no-annotate --no-header \
	  --all-extras $(GROUPS:%=--group %) -c constraints.txt -o $(LOCK) pyproject.toml

dist: $(VENV)/stamp-build
	rm -rf dist
	$(RUN) -m build --no-isolation
	$(RUN) release/sbom.py dist

try-wheel: dist
	$(RUN) release/try_wheel.py dist/*.whl $(PYTHONS)

clean:
	rm -rf $(VENV) docs/_build docs/reference docs/results docs/_executed build dist htmlcov .coverage .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
