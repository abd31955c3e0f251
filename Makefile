# make demo    set up, train the quickstart, score it, translate with it
# make test    set up and run the quick tests, every invariant once; `make test TESTS=tests/model` runs some of them
# make test-slow  the others, and with EXTRAS=test,oracles those against torch, transformers and CTranslate2
# make test-all  both
# make lint    check style and types; `make format` corrects what it can of the style
# make browser-test  page and report in a real browser (Chromium; skipped where there is none)
# make notebooks  rebuild the notebooks from their text sources and run them
# make weights  train the models that the notebooks start with again (notebooks/weights)
# make pictures   take the README's pictures of page and report again (Chromium)
# make faults  hours of injected faults: kills, damage, power cuts, lost processes (docs/reliability.md)
# make plan-tpu  memory of training on TPUs that are not there (docs/reliability.md)
# make docs    build the site: guide, notebooks, every function (docs/_build/html/index.html)

PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= test
BIN := $(VENV)/bin

.PHONY: demo test test-slow test-all browser-test faults plan-tpu lint format notebooks weights pictures docs clean

demo: $(VENV)/.demo
	$(BIN)/python train.py configs/quickstart.py
	@echo
	$(BIN)/python eval.py runs/quickstart
	@echo; echo "Baselines on the same test set:"
	$(BIN)/python -m benchmarks.phrasebook_baselines
	@echo
	printf '%s\n' $(SENTENCES) | $(BIN)/python translate.py runs/quickstart

SENTENCES := \
	"If it rains, the children cannot visit the museum." \
	"Tomorrow I want to visit my friend in the city." \
	"The teacher bought a new bicycle yesterday."

PYTEST := $(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist worksteal

test: $(VENV)/.$(EXTRAS)
	$(PYTEST) -m "not slow" $(TESTS)

test-slow: $(VENV)/.$(EXTRAS)
	$(PYTEST) -m slow $(TESTS)

test-all: test test-slow

browser-test: $(VENV)/.oracles $(VENV)/.browser
	$(BIN)/python -m pytest tests/serving/test_browser.py

faults: $(VENV)/.oracles
	SECOND_FAULTS=50 KILLS=20 FLIPS=1000 DAMAGES=240 FAULTS=12 CUTS=20 $(BIN)/python -m pytest --numprocesses 2 -rA \
		tests/commands/test_second_faults.py tests/commands/test_resume.py tests/runs/test_checkpoints.py \
		tests/commands/test_damage.py tests/commands/test_processes.py tests/commands/test_power_cut.py \
		tests/commands/test_skipped.py tests/commands/test_same_data.py tests/commands/test_preemption.py
	$(BIN)/python -m pytest --numprocesses 2 --hypothesis-profile random tests/config tests/data tests/documents \
		tests/decoding

plan-tpu: $(VENV)-plan/.plan
	$(VENV)-plan/bin/python -m benchmarks.tpu_plans

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/ty check --python $(VENV) transformer train.py eval.py translate.py generate.py convert.py

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

notebooks: $(VENV)/.notebook
	$(BIN)/python notebooks/build.py

weights: $(VENV)/.notebook
	$(BIN)/python notebooks/weights.py

pictures: $(VENV)/.notebook $(VENV)/.browser
	$(BIN)/python docs/pictures/take.py

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --fail-on-warning --quiet -c docs -d docs/_build/doctrees . docs/_build/html

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4))' || \
		{ echo "Python 3.11.4 or newer is needed: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.%: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@

# The compilers for TPUs bring a plug-in that others should not meet.
$(VENV)-plan/.plan: pyproject.toml
	$(PYTHON) -m venv $(VENV)-plan
	$(VENV)-plan/bin/python -m pip install --quiet --editable . libtpu
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-plan
