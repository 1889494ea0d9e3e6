# make train: train a policy.  make test: check what everybody relies on.  Both set up first.

SHELL := /bin/bash
PYTHON ?= python3
ARGS ?=
MINUTES ?= 60
# Let Python cache bytecode: hundreds of processes import the same files.
export PYTHONDONTWRITEBYTECODE =
# One more than cores, because tests also wait.
WORKERS ?= $(shell expr $$(nproc) + 1)
PYTEST = python3 -m pytest --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder -q --no-header

.PHONY: help setup wheel check-wheel train test test-fast test-all faults soak docs lint clean

help:
	@echo 'make train      train the arm to reach, one learner, two actors; ARGS="env_id:=CartPole-v1"'
	@echo 'make test       lint, then a test of each guarantee; ARGS="-k name" for some'
	@echo 'make test-fast  lint, then those of them without processes'
	@echo 'make test-all   lint, then every test, slow ones too'
	@echo 'make faults     kill, stop and fuzz what a run and the arm consist of; FULL=1 for hours'
	@echo 'make soak       let a training and the arm run for an hour: nothing may grow; MINUTES=2'
	@echo 'make wheel      build the part without ROS for pip, build/wheel; make check-wheel tries it'
	@echo 'make docs       build the documentation as a site, build/site/docs/index.html'
	@echo 'make setup      install requirements and build'
	@echo 'make lint       ruff, mypy, import-linter'
	@echo 'make clean      remove the environment and all build output'

setup:
	@$(PYTHON) bootstrap

# A build that is left would give its files to the next one.
wheel: setup
	@source setup.bash && rm -rf build/lib && \
		uv build --quiet --wheel --no-build-isolation --out-dir build/wheel . && \
		rm -rf build/lib build/bdist.* src/vdl_ros.egg-info && ls build/wheel/*.whl

# In an environment of its own, with any Python and any versions: OTHER=python3.13 WITH='numpy<2 gymnasium<1.2'
check-wheel: wheel
	@source setup.bash && folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
		uv venv --quiet --python $(or $(OTHER),python3) "$$folder" && \
		uv pip install --quiet --python "$$folder/bin/python" build/wheel/*.whl $(patsubst %,'%',$(WITH)) && \
		cd "$$folder" && unset PYTHONPATH && \
		bin/vdl_train --env_id CartPole-v1 --total_steps 30000 --run_dir run && \
		bin/python -c 'import sys, numpy, torch, vdl_ros; \
			print(vdl_ros.load_policy("run").predict([0.0, 0.0, 0.1, 0.0])[0]); \
			print("ok: Python", sys.version.split()[0], "NumPy", numpy.__version__, "PyTorch", torch.__version__)'

train: setup
	@source setup.bash && exec ros2 launch vdl_ros train.launch.py video:=true $(ARGS)

.PHONY: setup-tests setup-all-tests
setup-tests:
	@$(PYTHON) bootstrap --with-tests

setup-all-tests:
	@$(PYTHON) bootstrap --with-all-tests

# Each check, even if another one fails; of src, not of the installed package with its messages.
CHECKS = 'ruff check --quiet .' 'mypy --num-workers auto' 'lint-imports'
lint: setup-tests
	@source setup.bash && export PYTHONPATH="$(CURDIR)/src:$(CURDIR)/bootstrap/ros2_standin:$$PYTHONPATH" && \
		failed=0 && for check in $(CHECKS); do \
			if found=$$($$check 2>&1); then echo "lint: $$check: ok"; \
			else echo "lint: $$check: FAILED"; echo "$$found"; failed=1; fi; \
		done && exit $$failed

test: lint
	@source setup.bash && $(PYTEST) $(ARGS)

test-fast: lint
	@source setup.bash && $(PYTEST) -m 'not slow and not process' $(ARGS)

test-all: setup-all-tests lint
	@source setup.bash && $(PYTEST) -m '' $(ARGS)

faults: setup-tests
	@source setup.bash && python3 -m pytest test/faults --capture=no -m fault_row \
		--faults $(if $(FULL),full,reduced) $(ARGS)

soak: setup-tests
	@source setup.bash && PYTHONPATH="$(CURDIR):$(CURDIR)/test/arm:$$PYTHONPATH" python3 test/soak.py \
		--minutes $(MINUTES) $(ARGS)

docs: setup-tests
	@source setup.bash && sphinx-build -q -W --keep-going -c docs . build/site
	@echo 'build/site/docs/index.html'

clean:
	rm -rf .venv build install log
