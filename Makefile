# Chores of the project; `make help` lists them.
BIN := .venv/bin
CODE := src tests lab bench scripts deploy
# Modules without I/O: every line and branch of them is tested.
PURE = $(shell $(BIN)/python -m scripts.pure files)

# Tests start hundreds of interpreters; each would compile every module again. Users have buffers, and so have tests.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED

.PHONY: help setup setup-test demo plugin lint check unit test scaling lowest grafana bench lab lab-down golden docs site screenshots format fresh packages trial release clean

help: ## List the chores
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 18

setup: ## Install what slurmscope needs
	@scripts/setup demo

setup-test: ## Install what the tests need as well
	@scripts/setup test

demo: setup ## Run slurmscope over a simulated cluster
	@exec $(BIN)/slurmscope demo

plugin: ## Build the profiling plugin for the installed Slurm; SLURM_SOURCE=dir if it is not a Debian package
	@plugin/build

lint: setup-test
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m scripts.docs --check

check: lint ## Format, lint, types, imports, docs drift and tests of what has no I/O: before each commit
	SLURMSCOPE_QUICK=1 $(BIN)/pytest $$($(BIN)/python -m scripts.pure tests) -q -n 2

unit: setup-test ## All unit tests
	SLURMSCOPE_QUICK=1 $(BIN)/pytest tests/unit -q -n 2

# Tests that fail beside others on a busy machine are run again, alone; both results are shown. Only if pytest came to its
# end (status 1): if it was stopped or broke off, more is missing than what failed.
AGAIN = [ $$? -eq 1 ] && $(BIN)/pytest -q -n 0 --last-failed --last-failed-no-failures none
# What is asked of the coverage is asked at the end: a test that fails covers little before it is run again.
COVERED = --cov --cov-report=
DAEMONS = tests/browser tests/e2e tests/plugin

# Tests wait more than they compute, those of real daemons most of all: more workers than the two cores they are made for.
test: lint ## All tests, also those against real daemons and in a browser
	$(BIN)/pytest tests/unit -q -n 4 $(COVERED) || { $(AGAIN) $(COVERED) --cov-append tests/unit; }
	$(BIN)/coverage report --fail-under=90
	$(BIN)/coverage report --include='$(PURE)' --fail-under=100
	$(BIN)/pytest $(DAEMONS) -q -n 6 --dist loadfile --no-loadscope-reorder || { $(AGAIN) $(DAEMONS); }

scaling: setup-test ## Only the tests of distributed engines, several clusters and several portals: two minutes
	$(BIN)/pytest -q -m scaling -n 6 --dist loadfile tests/unit/reporter tests/e2e

lowest: ## Unit tests with the lowest releases of packages that pyproject.toml allows
	@SLURMSCOPE_QUICK=1 python3 -m scripts.lowest

grafana: setup-test ## Check the dashboards against the types that Grafana publishes
	@$(BIN)/python -m scripts.grafana_types

bench: setup-test ## Measure speed and cost against targets, side by side in one run
	$(BIN)/python -m bench

lab: setup-test ## Start a real Slurm cluster on this machine
	@$(BIN)/python -m lab up

lab-down: ## End it
	@$(BIN)/python -m lab down

golden: setup-test ## Rewrite golden files; review the difference before you commit it
	$(BIN)/pytest tests/unit -q -p no:randomly --golden

docs: setup-test ## Rewrite the generated parts of the documentation
	$(BIN)/python -m scripts.docs

site: setup-test ## Build the documentation as a site with search, in dist/site
	@$(BIN)/python -m scripts.site

screenshots: setup-test ## Take the screenshots of the documentation from the demo; look at them before you commit them
	@$(BIN)/python -m scripts.screenshots
	@$(BIN)/python -m scripts.dashboard_pictures

format: ## Format the code
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

fresh: ## Run make demo on a minimal Debian in a chroot, as root; FRESH='make test' for another command
	@scripts/fresh '$(or $(FRESH),make demo)'

packages: setup ## Build slurmscope.pyz, debs and rpms into dist
	@$(BIN)/python -m scripts.packages

trial: setup-test ## Install, use, upgrade and purge the packages in minimal Debian 12 and 13, as root
	DEBIAN_SUITES='bookworm trixie' $(BIN)/pytest -q -n 0 --durations=0 tests/e2e/test_packages.py \
		tests/e2e/test_packaged_report.py tests/e2e/guide_trial.py tests/e2e/test_ansible.py tests/e2e/test_container.py \
		tests/e2e/image_trial.py

release: ## Check and build a release, VERSION=x.y.z; publishes nothing
	@python3 -m scripts.release '$(VERSION)'

clean: ## Remove what the chores made
	rm -rf .venv .venv-lowest .coverage* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
