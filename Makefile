# Chores of the project; `make help` lists them.
BIN := .venv/bin
CODE := src tests lab bench scripts deploy
# Layers without I/O: every line and branch of them is tested.
PURE := src/slurmscope/archive/interface.py,src/slurmscope/archive/job_columns.py,src/slurmscope/archive/metric_ranges.py,src/slurmscope/cluster/completions.py,src/slurmscope/cluster/dbd.py,src/slurmscope/cluster/licenses.py,src/slurmscope/cluster/limits.py,src/slurmscope/cluster/node_sums.py,src/slurmscope/cluster/nodes.py,src/slurmscope/cluster/reservations.py,src/slurmscope/cluster/rpc.py,src/slurmscope/cluster/scheduler.py,src/slurmscope/cluster/sdiag.py,src/slurmscope/cluster/shares.py,src/slurmscope/cluster/sinfo.py,src/slurmscope/core/check.py,src/slurmscope/core/errors.py,src/slurmscope/core/hostlist.py,src/slurmscope/core/settings.py,src/slurmscope/core/tres.py,src/slurmscope/core/units.py,src/slurmscope/exporter/collector.py,src/slurmscope/inbox/pushed.py,src/slurmscope/jobs/advice.py,src/slurmscope/jobs/charts.py,src/slurmscope/jobs/curves.py,src/slurmscope/jobs/exit_status.py,src/slurmscope/jobs/findings.py,src/slurmscope/jobs/header_options.py,src/slurmscope/jobs/heat_maps.py,src/slurmscope/jobs/measured_run.py,src/slurmscope/jobs/pending/reasons.py,src/slurmscope/jobs/profiled_steps.py,src/slurmscope/jobs/queries.py,src/slurmscope/jobs/rating.py,src/slurmscope/jobs/record.py,src/slurmscope/jobs/report.py,src/slurmscope/jobs/resources.py,src/slurmscope/jobs/resubmission.py,src/slurmscope/jobs/rule.py,src/slurmscope/jobs/rules/cpu.py,src/slurmscope/jobs/rules/files.py,src/slurmscope/jobs/rules/gpu.py,src/slurmscope/jobs/rules/memory.py,src/slurmscope/jobs/rules/nodes.py,src/slurmscope/jobs/rules/threads.py,src/slurmscope/jobs/rules/time.py,src/slurmscope/jobs/series.py,src/slurmscope/jobs/suggestions.py,src/slurmscope/jobs/summarize.py,src/slurmscope/jobs/summary.py,src/slurmscope/jobs/traced_processes.py,src/slurmscope/jobs/traced_run.py,src/slurmscope/jobs/viewer.py,src/slurmscope/jobs/wait_times.py,src/slurmscope/metrics/family.py,src/slurmscope/metrics/guard.py,src/slurmscope/metrics/parse.py,src/slurmscope/metrics/write.py,src/slurmscope/node/job_metrics.py,src/slurmscope/node/job_use.py,src/slurmscope/node/jobs.py,src/slurmscope/run/curves.py,src/slurmscope/run/report.py,src/slurmscope/slurm/states.py,src/slurmscope/trace/samples.py

# Tests start hundreds of interpreters; each would compile every module again. Users have buffers, and so have tests.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED

.PHONY: help setup setup-test demo plugin lint check test scaling lowest bench lab lab-down golden docs format fresh release clean

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

check: lint ## Format, lint, types, imports, docs drift and unit tests: before each commit
	SLURMSCOPE_QUICK=1 $(BIN)/pytest tests/unit -q -n 2

# A test that fails beside others on a busy machine is run again, alone; both results are shown.
AGAIN = $(BIN)/pytest -q -n 0 --last-failed --last-failed-no-failures none

# Tests wait more than they compute, those of real daemons most of all: more workers than the two cores they are made for.
test: lint ## All tests, also those against real daemons and in a browser
	$(BIN)/pytest tests/unit -q -n 4 --cov --cov-report=term --cov-fail-under=90 || $(AGAIN) tests/unit
	$(BIN)/pytest tests/plugin -q -n 2
	$(BIN)/coverage report --include='$(PURE)' --fail-under=100
	$(BIN)/pytest tests/browser tests/e2e -q -n 6 --dist loadfile --no-loadscope-reorder \
		|| $(AGAIN) tests/browser tests/e2e

scaling: setup-test ## Only the tests of distributed engines, several clusters and several portals: two minutes
	$(BIN)/pytest -q -m scaling -n 6 --dist loadfile tests/unit/services/reporting tests/e2e

lowest: ## Unit tests with the lowest releases of packages that pyproject.toml allows
	@SLURMSCOPE_QUICK=1 python3 -m scripts.lowest

bench: setup-test ## Measure the promises about speed, side by side in one run
	$(BIN)/python -m bench

lab: setup-test ## Start a real Slurm cluster on this machine
	@$(BIN)/python -m lab up

lab-down: ## End it
	@$(BIN)/python -m lab down

golden: setup-test ## Rewrite golden files; review the difference before you commit it
	$(BIN)/pytest tests/unit -q -p no:randomly --golden

docs: setup-test ## Rewrite the generated parts of the documentation
	$(BIN)/python -m scripts.docs

format: ## Format the code
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

fresh: ## Run make demo on a minimal Debian in a chroot, as root; FRESH='make test' for another command
	@scripts/fresh '$(or $(FRESH),make demo)'

release: ## Check and build a release, VERSION=x.y.z; publishes nothing
	@python3 -m scripts.release '$(VERSION)'

clean: ## Remove what the chores made
	rm -rf .venv .venv-lowest .coverage* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
