# Needs Go, make and git; a C compiler too where the race detector is wanted.
# Everything built here goes to .cache, which can be deleted at any time.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Heavy builds come one after the other, also under make -j.
.NOTPARALLEL:

BIN := .cache/bin
CHART := charts/cilium-pool-operator
GO_DIRS := $(wildcard api cmd pkg hack test)
PKG ?= ./...
FUZZTIME ?= 20s
BENCHTIME ?= 1s
# The race detector needs cgo on Linux; Go turns cgo off where it finds no C compiler.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)
GOFLAGS := $(shell go env GOFLAGS)
# Everything but the tests under the race detector is built in the same way, as images and
# releases are: each other way would compile all dependencies once more.
export CGO_ENABLED := 0
export GOFLAGS += -trimpath

# progress NAME shows how far "go build -v" is.
progress = 2>&1 | $(CURDIR)/hack/progress.sh '$(1)'

# mod-version DIR,MODULE is the version of MODULE in DIR/go.mod.
mod-version = $(shell awk '$$1 == "$(2)" && $$2 ~ /^v/ {print $$2; exit} $$1 == "require" && $$2 == "$(2)" {print $$3; exit}' $(1)/go.mod)

# given NAME,DEFAULT is a variable of the command line or the environment, or the default.
given = $(if $(filter command line environment,$(origin $(1))),$($(1)),$(2))

# After a command that exits 4 where the machine cannot run it: says so, and goes on,
# unless REQUIRED is set, as where a skipped run would go unnoticed.
or-skipped = || { code=$$?; [[ $$code -eq 4 ]] || exit $$code; echo "$(1): SKIPPED, nothing is proven by this run"; \
	[[ -z "$(REQUIRED)" ]] || { echo "REQUIRED=$(REQUIRED): a skipped run is a failure here"; exit 4; }; }

include $(addprefix hack/make/,tools.mk release.mk parts.mk checks.mk)

##@ Everyday

.PHONY: help
help: ## Show this list; with ALL=1 every target, of hack/make too.
	@awk 'BEGIN {FS = ":.*## "} \
		$(if $(ALL),/^[a-z0-9-]+:.* # / {sub(/ # /, " ## ")}) \
		/^##@/ {title = "\n" substr($$0, 5) "\n"} \
		/^[a-z0-9-]+:.*## / {printf "%s  \033[36m%-14s\033[0m %s\n", title, $$1, $$2; title = ""}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the operator into .cache/bin.
	go build -o $(BIN)/ ./cmd/...

# Tests on a real API server mostly wait: more packages, and more tests of one, run
# at the same time than there are processors. GOGC=400 is for compilers, linkers, tests
# and API servers alike: a tenth less work for a tenth more memory.
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN)
TEST := GOGC=400 go test -timeout $$((30 * $(or $(COUNT),1)))m $(if $(COUNT),-count=$(COUNT)) -p $$((2 * $(PROCESSORS))) -parallel $$(($(PROCESSORS) + 1))

# Packages of the product with goroutines, and the suite that runs all of these in one process.
RACED := $(addprefix ./,$(addprefix pkg/,ciliumconfig controller/... plugin/... scheduling/... state/... window) test/integration)
# Go's own linker links tests in two thirds of the time that it takes with the system's.
LINK_TESTS := $(if $(filter linux,$(shell go env GOOS)),-ldflags=-linkmode=internal)
# Without atexit_sleep_ms each process would sleep for a second at its end.
TEST_RACED := $(if $(RACE),CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 )$(TEST) $(RACE) $(LINK_TESTS)

# These begin first, so that none of them is left at the end.
LONGEST := ./test/plugin ./test/chart ./test/integration

.PHONY: test-needs
test-needs: controlplane helm $(BIN)/cilium-ipam
	@[[ -n "$(RACE)" ]] || echo "no C compiler found: no test runs under the race detector"

.PHONY: test
test: test-needs ## Run the tests, but for the long ones; those of goroutines under the race detector. PKG=./pkg/ipalloc runs those of one package, COUNT=20 each test 20 times.
	@echo "testing: compiling all tests takes about 15 minutes on two cores the first time, running them 8"
	packages=$$(go list $(if $(call given,PKG),,$(LONGEST)) $(PKG)); raced=$$(go list $(RACED)); \
	plain=$$(grep -vxF "$$raced" <<<"$$packages" || true); raced=$$(grep -xF "$$raced" <<<"$$packages" || true); \
	[[ -z "$$plain" ]] || $(TEST) -skip '^TestLong' $$plain; \
	[[ -z "$$raced" ]] || $(TEST_RACED) -skip '^TestLong' $$raced
	@echo "left out: $$(grep -rhc '^func TestLong' --include='*_test.go' $(GO_DIRS) | awk '{n += $$1} END {print n}') tests of long loops, TestLong...; make test-long runs them"

# The packages that have long tests. Those of test/chaos take longest, and mostly wait.
LONG = test/chaos/ $(filter-out test/chaos/,$(sort $(dir $(shell grep -rl '^func TestLong' --include='*_test.go' $(GO_DIRS)))))

.PHONY: test-long
test-long: test-needs ## Run the long tests (TestLong...): more seeds, chaos, Helm 3. PKG=./test/chart
	$(TEST) -run '^TestLong' $(call given,PKG,$(addprefix ./,$(LONG)))

.PHONY: lint
lint: $(golangci-lint) ## Run golangci-lint, and go vet on test/map, which imports this module: no other test builds it.
	GOMAXPROCS=2 $(golangci-lint) run --concurrency 2 ./...
	cd api && $(golangci-lint) run ./...
	cd test/map && go vet ./...

.PHONY: fmt
fmt: ## Format all Go code.
	gofmt -l -w $(GO_DIRS)

.PHONY: generate
generate: deepcopy crds docs/reference/api.md chart-docs ## Write everything that is generated: deepcopy, CRDs, docs/reference/api.md, the chart's README, SECURITY.md.

.PHONY: ci
ci: ## Everything a change must pass: .ci/run.
	.ci/run

.PHONY: clean
clean: ## Delete .cache and dist: built binaries, tools and files of a release.
	rm -rf .cache dist

##@ See it work

NODES ?= 20
PODS ?= 60

.PHONY: demo-binaries
demo-binaries: controlplane
	@echo "building the operator and the demo: up to 2 minutes the first time"
	@go build -v -o $(BIN)/ ./cmd/cilium-pool-operator ./test/chaos $(call progress,operator and demo)

.PHONY: demo
demo: demo-binaries ## Pools, nodes and pods in a story of a minute; fails if a rule broke. NODES=20 MODE=crd|multi-pool
	@$(BIN)/chaos demo --nodes=$(NODES) $(if $(MODE),--mode=$(MODE))

.PHONY: up
up: demo-binaries ## Start the same and leave it running, with .run/kubeconfig. NODES=20 MODE=crd|multi-pool
	@$(BIN)/chaos up --nodes=$(NODES) $(if $(MODE),--mode=$(MODE))

.PHONY: burst
burst: ## Let a node of "make up" have so many pods: NODE=beijing-01 PODS=60, PODS=0.
	@[[ -x $(BIN)/chaos ]] || { echo "nothing runs: make up starts it"; exit 1; }
	@$(BIN)/chaos burst --node=$(NODE) --pods=$(PODS)

.PHONY: down
down: ## Stop what "make up" started.
	@go build -o $(BIN)/ ./test/chaos
	@$(BIN)/chaos down

.PHONY: quickstart
quickstart: ## Run the first block of docs/start.md as a reader would.
	hack/quickstart.sh

# Outside hack/site, so that no check of our files walks through node_modules.
SITE := .cache/site
$(SITE)/node_modules/.package-lock.json: hack/site/package-lock.json
	hack/debian-packages.sh nodejs=node npm=npm
	@echo "installing the site's generator: once, about a minute"
	mkdir -p $(SITE)
	cp hack/site/package*.json $(SITE)/
	npm ci --prefix $(SITE) --ignore-scripts --no-audit --no-fund
	@touch $@

.PHONY: site
site: $(SITE)/node_modules/.package-lock.json ## Build README.md and docs/ as a site with search into .run/site. Needs Node and npm. SITE_BASE=/path/
	@echo "building the site: about 2 minutes on two cores"
	cp -r hack/site/.vitepress $(SITE)/
	$(SITE)/node_modules/.bin/vitepress build $(SITE) --base '$(or $(SITE_BASE),/)'

.PHONY: site-preview
site-preview: site ## Serve it on http://localhost:4173.
	$(SITE)/node_modules/.bin/vitepress preview $(SITE)

##@ On real agents and clusters

.PHONY: e2e
e2e: controlplane $(kubernetes-dir)/kube-apiserver $(kubernetes-dir)/etcd cilium $(helm) $(if $(findstring modes,$(RUN))$(findstring bgp,$(RUN)),$(BIN)/bgp-router) ## Run the operator with real Cilium; needs root. RUN=all, ci, migrate, modes, matrix, or join,surge; CILIUM=v1.19.5, KUBERNETES=v1.32.13, PATCHED=1
	hack/e2e-packages.sh
	go build -o $(BIN)/ ./cmd/cilium-pool-operator ./cmd/kubectl-cilium_pool ./test/e2e
	CCACHE_DIR=$(CURDIR)/.cache/ccache $(BIN)/e2e -run '$(RUN)' -bin $(BIN) -kubernetes $(kubernetes-dir) -cilium $(cilium-dir) $(if $(PATCHED),-patched) -helm $(helm) $(call or-skipped,e2e)

.PHONY: matrix
matrix: ## Run each Kubernetes with each Cilium in crd and multi-pool mode, and write docs/compatibility.md; an hour. KUBERNETES=v1.32.13 CILIUM=v1.19.5
	MAKE='$(MAKE)' hack/matrix.sh docs/compatibility.md '$(call given,KUBERNETES,$(kubernetes-version) $(OLDEST_KUBERNETES))' \
		'$(call given,CILIUM,$(cilium-default) v1.19.5 v1.18.8)'

.PHONY: cluster
cluster: cluster-program ## Run scenarios on a real Kubernetes cluster with Cilium; needs root. SKIPPED where the machine cannot. RUN=ci, all, first-hour, or install,scale; TIMEOUT=30m
	@$(BIN)/cluster run $(cluster-flags) -run '$(CLUSTER_RUN)' $(if $(TIMEOUT),-timeout $(TIMEOUT)) $(call or-skipped,cluster)

.PHONY: cluster-up
cluster-up: cluster-program ## Start one, install Cilium and the operator as docs/install.md says, and leave it, with .run/cluster/kubeconfig. NODES=3
	@$(BIN)/cluster up $(cluster-flags)

.PHONY: cluster-down
cluster-down: ## Remove what "make cluster-up", or a killed "make cluster", left.
	@go build -o $(BIN)/cluster ./$(CLUSTER)
	@$(BIN)/cluster down
