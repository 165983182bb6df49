# make help lists what there is.
export CGO_ENABLED ?= 0
GO      ?= go
# What the binary, the checks and the tests share is compiled once, so all compile alike.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell $(GO) env GOFLAGS 2>/dev/null)) -trimpath)
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  = -s -w -X main.version=$(VERSION)
RUNNER   = adapters/gateway/sandbox/bin/runner

.DEFAULT_GOAL := build
.PHONY: help deps deps-engines gen build image console runner programs pool run test test-go test-web test-e2e test-kill test-schedule-kill test-recovery test-faults test-pool test-pool-starts test-upgrade test-gpu test-engines check lint bench bench-place bench-submit bench-schedule bench-pool bench-lend bench-cuda clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install what building and testing needs
	@scripts/deps.sh test

deps-engines: ## build and install real Kubernetes, kubelet included, for test-engines
	@scripts/deps.sh engines

build: runner programs pool console ## build bin/yunhe with its console, and the example
	@mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/yunhe ./cmd/yunhe
	$(GO) build -ldflags '$(LDFLAGS)' -o examples/digits/train ./examples/digits

image: build ## write bin/yunhe-image.tar, a container image of bin/yunhe; it needs no Docker
	bin/yunhe availability image --name yunhe:$(VERSION) --out bin/yunhe-image.tar

runner: # the supervisor of one replica, embedded into the binary
	@$(GO) build -ldflags '-s -w' -o $(RUNNER) ./adapters/gateway/sandbox/runner/cmd

programs: # the benchmark for each architecture, embedded into the binary; without them it measures no center
	@scripts/programs.sh

pool: # the accelerator pool's worker and client library, embedded into the binary; without a C compiler it has none
	@scripts/pool.sh

console: # the web console, embedded into the binary; without npm the binary has none
	@scripts/console.sh

run: ## build, start three centers here, run the first job, keep the console up
	@scripts/deps.sh run
	@$(MAKE) --no-print-directory build
	@scripts/run.sh

test: ## all tests that need no special hardware
	@scripts/deps.sh test
	@$(MAKE) --no-print-directory build
	@$(MAKE) --no-print-directory test-go test-web test-e2e

# Without the detector in SQLite's engine and what unpacks: decision 35. GOGC: memory for a tenth of the time.
test-go: # Go tests on the real engines, with the race detector
	@CGO_ENABLED=1 GOGC=200 scripts/gotest.sh "$$($(GO) list ./... | grep -v /e2e/)" -- -vet=off -race -gcflags=modernc.org/...=-race=false -gcflags=compress/flate=-race=false -timeout 60m

test-web: # the console's unit tests
	@scripts/console.sh test

test-e2e: # processes, faults and a real browser against bin/yunhe
	@scripts/e2e.sh

test-kill: ## 10,000 jobs while platform and gateways are killed 100 times, on SQLite and PostgreSQL
	@scripts/deps.sh test
	@$(MAKE) --no-print-directory build
	$(GO) test -count=1 -timeout 60m -v -run 'TestKill$$' ./e2e/kill -kill.jobs=10000 -kill.kills=100

test-schedule-kill: ## the process that schedules is killed 200 times between decision and dispatch, on SQLite and PostgreSQL
	@scripts/deps.sh test
	@$(MAKE) --no-print-directory build
	YUNHE_TEST_SCHEDULE_KILLS=$${YUNHE_TEST_SCHEDULE_KILLS:-200} $(GO) test -count=1 -timeout 60m -v -run 'TestScheduleKill$$' ./e2e/kill

test-recovery: ## leaders and processes that answer are killed 20 times each; how long their work stands still, and what it costs clients
	@scripts/deps.sh test
	@$(MAKE) --no-print-directory build
	YUNHE_TEST_RECOVERY_KILLS=$${YUNHE_TEST_RECOVERY_KILLS:-20} $(GO) test -count=1 -timeout 60m -v -run 'TestRecovery$$' ./e2e/kill

test-faults: ## 10 minutes of load while everything fails in turn: processes, bus, database, network, disk, clocks
	@scripts/deps.sh test
	@$(MAKE) --no-print-directory build
	YUNHE_TEST_FAULTS_FOR=$${YUNHE_TEST_FAULTS_FOR:-10m} $(GO) test -count=1 -timeout 90m -v -run 'TestFaults$$' ./e2e/kill

test-pool: ## the 27 tests of clause 12 on a platform and pool nodes in network namespaces, in a virtual machine, in other systems, and programs of others, with real compute and a browser
	@scripts/deps.sh pool
	@$(MAKE) --no-print-directory build
	YUNHE_TEST_POOL=1 $(GO) test -count=1 -timeout 40m -v -run 'Test(Clause12|VirtualMachine|Systems)$$' ./e2e/pool
	YUNHE_TEST_POOL=1 $(GO) test -count=1 -timeout 70m -v -run 'TestThirdParty$$|TestVendors$$|TestCUDARemoteFFmpeg$$' ./internal/pool

test-pool-starts: ## 10,000 short programs on slices, some of which crash or are killed, leave nothing
	@scripts/deps.sh pool
	@$(MAKE) --no-print-directory build
	YUNHE_TEST_POOL_STARTS=$${YUNHE_TEST_POOL_STARTS:-10000} $(GO) test -count=1 -timeout 120m -v -run 'TestStarts$$' ./e2e/pool

test-upgrade: ## every process is replaced under load, and pool nodes while programs compute, from the version before the last migrations or YUNHE_TEST_UPGRADE_FROM
	@scripts/deps.sh test
	@$(MAKE) --no-print-directory build
	YUNHE_TEST_UPGRADE_FROM=$${YUNHE_TEST_UPGRADE_FROM:-auto} $(GO) test -count=1 -timeout 60m -p 1 -v -run 'TestUpgrade$$' ./e2e/kill ./e2e/pool

test-gpu: ## the pool on this machine's NVIDIA card: discovery, shares, memory, speed, PyTorch, OpenCL; bin/gpu.tar.xz is for one that has nothing to build with
	@scripts/deps.sh test
	@$(MAKE) --no-print-directory build
	@scripts/testgpu.sh
	@bin/gpu/run

test-engines: ## one platform over real Kubernetes (kubelet included), Slurm and a gateway
	@scripts/deps.sh engines
	@$(MAKE) --no-print-directory build
	$(GO) test -count=1 -timeout 40m -v ./e2e/engines -engines
	YUNHE_TEST_ENGINES=1 $(GO) test -count=1 -timeout 40m -p 1 ./adapters/kubernetes ./adapters/slurm
	$(GO) test -count=1 -timeout 10m -v -run 'TestPods$$' ./e2e/pool

check: lint ## what CI checks: format, vet, staticcheck, generated files, the rules of the house
	@scripts/check.sh

lint:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...

gen: ## generate gen/ and web/src/gen from api/
	@scripts/gen.sh

bench: ## all benchmarks; figures go to docs/benchmarks.md by hand
	@scripts/deps.sh bench
	@$(MAKE) --no-print-directory build
	$(GO) test -run xxx -bench . -benchtime 1s ./internal/... ./adapters/...
	@$(MAKE) --no-print-directory bench-place
	@$(MAKE) --no-print-directory bench-submit
	@$(MAKE) --no-print-directory bench-schedule

bench-place: build ## decisions per second of the scheduler's engines, beside goals and others' figures
	@bin/yunhe sim bench

bench-submit: ## submissions per second beside Slurm and Kubernetes, and time to start
	@scripts/deps.sh bench
	@$(MAKE) --no-print-directory build
	$(GO) run ./bench/submit

bench-schedule: ## jobs per second from queue to 1,000 centers, durable, and T while they arrive
	@scripts/deps.sh bench
	@$(MAKE) --no-print-directory build
	$(GO) run ./bench/schedule

bench-pool: ## what the accelerator pool costs beside native, in one run
	@scripts/deps.sh test
	@$(MAKE) --no-print-directory build
	@scripts/benchpool.sh

bench-lend: ## what lending costs a platform with the most nodes of the pool there can be
	@scripts/deps.sh test
	go test -run '^$$' -bench '^Benchmark(Lending|Asking|Next|Yield)' -benchtime 2s -timeout 20m ./internal/pools

bench-cuda: ## how exact shares of CUDA are, on a stand-in of the driver
	@scripts/deps.sh test
	@$(MAKE) --no-print-directory build
	@scripts/benchcuda.sh

clean: ## remove what was built
	rm -rf bin .cache/tools web/dist/assets web/dist/index.html internal/measurement/programs/*.gz internal/pool/programs/*.gz $(RUNNER) examples/digits/train
