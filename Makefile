# `make demo` and `make test` are the only set-up on a fresh machine: they make .venv and install into it.
# Where Python is called otherwise: make test PYTHON=python3.12

PYTHON ?= python3
# The versions that are installed: make test CONSTRAINTS=/dev/null takes the newest ones.
CONSTRAINTS ?= constraints.txt
VENV := .venv
LOWEST := .venv-lowest
BIN := $(VENV)/bin
comma := ,
INSTALLED := $(VENV)/.installed
# One process for each core, each with one thread: more threads than cores make every test slower. A process keeps the
# tests of a file together, and takes from another when it has none left, so that what a file shares is made once.
WORKERS ?= $(shell n=$$(env -u OMP_NUM_THREADS nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2); [ $$n -gt 8 ] && n=8; echo $$n)
PYTEST = OMP_NUM_THREADS=1 $(1)/python -m pytest -n $(WORKERS) --dist worksteal

# As on a processor that has AVX2 and no more, and as on one without that: no bfloat16, sums of 8-bit products in 16 bits.
AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 CT2_FORCE_CPU_ISA=AVX2 CT2_USE_MKL=0
GENERIC := ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default CT2_FORCE_CPU_ISA=GENERIC CT2_USE_MKL=0

.PHONY: demo test test-all test-avx2 test-generic test-processor test-lowest wheel site links check format bench experiment tables conformance clean

# What a demo needs, without the tools of tests; `make test` adds these.
demo: $(if $(wildcard $(INSTALLED)),$(INSTALLED),$(VENV)/.demo)
	$(BIN)/attncal demo --output demo
	GOMP_SPINCOUNT=10000 $(BIN)/python examples/gated_model.py --output demo

test: conformance
	$(call PYTEST,$(BIN)) -m "not slow"

test-all: conformance
	$(call PYTEST,$(BIN))

test-avx2: conformance
	$(AVX2) $(call PYTEST,$(BIN)) -m "not slow"

test-generic: conformance
	$(GENERIC) $(call PYTEST,$(BIN)) -m "not slow"

# Only the tests that depend on the processor, as on one with AVX2 and no more.
test-processor: conformance
	$(AVX2) $(call PYTEST,$(BIN)) -m "processor and not slow"

# The same with the lowest versions that pyproject.toml allows, in an environment of their own.
test-lowest:
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e ".[test]"
	$(LOWEST)/bin/python tests/conformance/fetch_upstream_tests.py
	$(call PYTEST,$(LOWEST)/bin) -m "not slow"

# What a release uploads.
wheel: $(INSTALLED)
	$(BIN)/python -m pip wheel --quiet --no-deps -w dist .

# The site from README, docs, notebooks and docstrings. A warning is an error: a link that leads nowhere, a docstring
# that cannot be read. Only the installation needs the network.
SITE := OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -c docs -d build/doctrees
site: $(VENV)/.site
	$(SITE) -q . build/site
	@echo "Open build/site/index.html"

# Whether the addresses that the site names answer; this needs the network.
links: $(VENV)/.site
	$(SITE) -b linkcheck . build/links

# transformers' own tests of model classes, taken from the source distribution of the installed version.
conformance: $(INSTALLED)
	$(BIN)/python tests/conformance/fetch_upstream_tests.py

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/lint_models.py
	$(BIN)/python -m mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/generation.py
	$(BIN)/python benchmarks/adapters.py

# The results of one table again: make experiment NAME=multi30k DATA=DIR; without NAME, what there is.
experiment: $(INSTALLED)
	$(BIN)/python experiments/run.py $(if $(NAME),$(NAME) $(if $(DATA),--data $(DATA)),--list)

# The tables of README and docs, from results/.
tables: $(INSTALLED)
	$(BIN)/python experiments/tables.py

# Without a GPU, PyTorch's CPU build, if its index answers: the ordinary one brings gigabytes of CUDA.
CPU_BUILDS := https://download.pytorch.org/whl/cpu
ASK := import urllib.request; urllib.request.urlopen("$(CPU_BUILDS)/torch/", timeout=5).read(1)
# Python compiles what it imports; all of it would be 0.3 GB and a minute.
define INSTALL
@echo "Installing into $(VENV), once: $(2)"
@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
@builds=; \
if [ "$$(uname -s)" = Linux ] && ! nvidia-smi >/dev/null 2>&1 && ! $(BIN)/python -c "import torch" 2>/dev/null; then \
	if $(BIN)/python -c '$(ASK)' 2>/dev/null; then \
		echo "No GPU here: PyTorch's CPU build, from $(CPU_BUILDS)"; builds="--extra-index-url $(CPU_BUILDS)"; \
	else \
		echo "$(CPU_BUILDS) does not answer: pip takes the build that it finds, which may bring 5 GB of CUDA."; \
	fi; \
fi; \
$(BIN)/python -m pip install --disable-pip-version-check --no-compile $$builds -c $(CONSTRAINTS) -e "$(1)"
touch $@
endef

$(VENV)/.demo: pyproject.toml constraints.txt
	$(call INSTALL,.[train$(comma)plot],PyTorch$(comma) transformers and what training and pictures need; 0.4 GB to fetch$(comma) 1.4 GB on the disk.)

$(INSTALLED): pyproject.toml constraints.txt
	$(call INSTALL,.[test],the package with all extras and the tools of its tests; 0.6 GB to fetch$(comma) 2 GB on the disk.)

$(VENV)/.site: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e ".[site]"
	touch $@

clean:
	rm -rf $(VENV) $(LOWEST) .cache .pytest_cache .ruff_cache build dist demo
