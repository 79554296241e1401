# Needs Go, make and git; a C compiler too where the race detector is wanted.
# Everything built here goes to .cache, which can be deleted at any time.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Heavy builds come one after the other, also under make -j.
.NOTPARALLEL:

BIN := .cache/bin
CHART := charts/cilium-pool-operator
GO_DIRS := $(wildcard cmd pkg hack test)
PKG ?= ./...
FUZZTIME ?= 20s
BENCHTIME ?= 1s
# The race detector needs cgo on Linux; Go turns cgo off where it finds no C compiler.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)
GOFLAGS := $(shell go env GOFLAGS)
# Everything but the tests is built in the same way, as images and releases are: each
# other way would compile all dependencies once more.
export CGO_ENABLED := 0
export GOFLAGS += -trimpath
# Tests need cgo for the race detector, and find files by the paths in their binaries.
TEST_ENV := CGO_ENABLED=$(if $(RACE),1,0) GOFLAGS='$(filter-out -trimpath,$(GOFLAGS))'

# progress NAME shows how far "go build -v" is.
progress = 2>&1 | $(CURDIR)/hack/progress.sh '$(1)'

# mod-version DIR,MODULE is the version of MODULE in DIR/go.mod.
mod-version = $(shell awk '$$1 == "$(2)" && $$2 ~ /^v/ {print $$2; exit} $$1 == "require" && $$2 == "$(2)" {print $$3; exit}' $(1)/go.mod)

# After a command that exits 4 where the machine cannot run it: says so, and goes on,
# unless REQUIRED is set, as where a skipped run would go unnoticed.
or-skipped = || { code=$$?; [[ $$code -eq 4 ]] || exit $$code; echo "$(1): SKIPPED, nothing is proven by this run"; \
	[[ -z "$(REQUIRED)" ]] || { echo "REQUIRED=$(REQUIRED): a skipped run is a failure here"; exit 4; }; }

##@ Everyday

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  \033[36m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the operator into .cache/bin.
	go build -o $(BIN)/ ./cmd/...

# Tests on a real API server mostly wait: more packages, and more tests of one, run
# at the same time than there are processors. The race detector would let every
# process sleep for a second at its end. GOGC=400 is for compilers, linkers, tests and
# API servers alike: a tenth less work for a tenth more memory. Go's own linker links
# tests in two thirds of the time that it takes with the system's.
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN)
LINK_TESTS := $(if $(filter linux,$(shell go env GOOS)),-ldflags=-linkmode=internal)
TEST := $(TEST_ENV) GORACE=atexit_sleep_ms=0 GOGC=400 go test $(RACE) $(LINK_TESTS) -timeout $$((60 * $(or $(COUNT),1)))m $(if $(COUNT),-count=$(COUNT)) -p $$((2 * $(PROCESSORS))) -parallel $$(($(PROCESSORS) + 1))

# These begin first, so that none of them is left at the end.
LONGEST := ./test/plugin ./test/chart ./test/integration ./pkg/controller/node

.PHONY: test-needs
test-needs: controlplane helm $(BIN)/cilium-ipam
	@[[ -n "$(RACE)" ]] || echo "no C compiler found: testing without the race detector"

.PHONY: test
test: test-needs ## Run the tests, but for the long ones, under the race detector. PKG=./pkg/ipalloc runs those of one package, COUNT=20 each test 20 times.
	@echo "testing: compiling all tests takes about 15 minutes on two cores the first time, running them 8"
	$(TEST) -skip '^TestLong' $(if $(filter command line environment,$(origin PKG)),,$(LONGEST)) $(PKG)
	@echo "left out: $$(grep -rhc '^func TestLong' --include='*_test.go' $(GO_DIRS) | awk '{n += $$1} END {print n}') tests of long loops, TestLong...; make test-long runs them"

# The packages that have long tests. Those of test/chaos take longest, and mostly wait.
LONG = test/chaos/ $(filter-out test/chaos/,$(sort $(dir $(shell grep -rl '^func TestLong' --include='*_test.go' $(GO_DIRS)))))

.PHONY: test-long
test-long: test-needs ## Run the long tests (TestLong...), under the race detector: more seeds, chaos, exhaustive steps, Helm 3. PKG=./test/chart
	$(TEST) -run '^TestLong' $(if $(filter command line environment,$(origin PKG)),$(PKG),$(addprefix ./,$(LONG)))

.PHONY: ci
ci: ## Everything a change must pass: .ci/run.
	.ci/run

.PHONY: fuzz
fuzz: ## Fuzz each fuzz target in turn. FUZZTIME=20s, PKG=./...
	hack/fuzz.sh $(FUZZTIME) $(PKG)

.PHONY: mutants
mutants: controlplane ## Plant known faults in the operator's code; fails if one goes unseen. RUN=regexp, CHECKS=unit,random,sim, ALL=1, KEY=1, PROTOCOL=1
	go run ./test/mutants -run '$(RUN)' $(if $(CHECKS),-checks='$(CHECKS)') $(if $(ALL),-all-checks) $(if $(KEY),-key) $(if $(PROTOCOL),-protocol)

BASE ?= origin/main
.PHONY: mutants-changed
mutants-changed: controlplane ## Plant the mutants of the files that differ from a commit. BASE=origin/main, CHECKS=
	files=$$(git diff --name-only --diff-filter=d '$(BASE)...' -- pkg cmd | paste -sd,); \
	go run ./test/mutants -files "$$files" $(if $(CHECKS),-checks='$(CHECKS)')

SEEDS ?= 1000
STEPS ?= 500

.PHONY: sim
sim: ## Simulate so many seeded worlds around the operator; fails if a rule broke. SEEDS=1000 SEED=1 STEPS=500 MODE=crd|multi-pool|kubernetes
	go run ./test/sim -seed=$(or $(SEED),1) -seeds=$(SEEDS) -steps=$(STEPS) $(if $(MODE),-mode=$(MODE))

.PHONY: exhaust
exhaust: ## Try everything that can happen in small worlds, to a depth; fails if a rule broke. DEPTH=, SCOPES=join,lag
	go run ./test/sim/exhaust $(if $(DEPTH),-depth=$(DEPTH)) $(if $(SCOPES),-scopes=$(SCOPES))

.PHONY: points
points: ## Inject every fault at every write, event and agent step of reference scenarios; fails if a rule broke. SCENARIOS=join,grow FAULTS=killed-after
	go run ./test/sim/points $(if $(SCENARIOS),-scenarios=$(SCENARIOS)) $(if $(FAULTS),-faults=$(FAULTS))

.PHONY: changes
changes: ## Change every field of a spec to right and wrong values, in several states of a cluster and back; fails if the way matters, or one is accepted silently. STATES=grown,full PART=3
	go run ./test/sim/changes $(if $(STATES),-states=$(STATES)) $(if $(PART),-part=$(PART))

.PHONY: model
model: ## Visit every state of a model of the address protocol; fails if a rule broke or something waits for ever. ROWS=agent-window STORY=1, BIG=1
	go run ./test/model $(if $(ROWS),-rows='$(ROWS)') $(if $(STORY),-story) $(if $(BIG),-big)

##@ See it work

NODES ?= 20
PODS ?= 60

.PHONY: demo-binaries
demo-binaries: controlplane
	@echo "building the operator and the demo: up to 2 minutes the first time"
	@go build -v -o $(BIN)/ ./cmd/cilium-pool-operator ./test/chaos $(call progress,operator and demo)

.PHONY: demo
demo: demo-binaries ## Pools, nodes and pods in a story of a minute; fails if a rule broke. NODES=20
	@$(BIN)/chaos demo --nodes=$(NODES)

.PHONY: up
up: demo-binaries ## Start the same and leave it running, with .run/kubeconfig. NODES=20
	@$(BIN)/chaos up --nodes=$(NODES)

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

# NODES of the demo is 20; here it is 200 unless given.
CHAOS_NODES := $(if $(filter command line environment,$(origin NODES)),$(NODES),200)

.PHONY: chaos
chaos: FAULTS ?= 60s
chaos: COUNT ?= 1
chaos: demo-binaries ## Kill, cut off and edit all there is under 200 nodes, then see that all settles. RUN=processes|network|apiservers|etcd|clocks|versions|soak|renumber NODES=200 FAULTS=60s COUNT=1 MODE=crd|multi-pool|kubernetes SEED= RESTART= ONLY= SKEW=
	@$(BIN)/chaos --faults=$(FAULTS) --count=$(COUNT) --nodes=$(CHAOS_NODES) \
		$(if $(filter command line environment,$(origin RUN)),--run=$(RUN)) $(if $(ONLY),--only='$(ONLY)') $(if $(MODE),--mode=$(MODE)) $(if $(SEED),--seed=$(SEED)) $(if $(RESTART),--restart) $(if $(SKEW),--skew=$(SKEW))

# NODES of the demo is 20; here it is 500 unless given.
PLAN_NODES := $(if $(filter command line environment,$(origin NODES)),$(NODES),500)

.PHONY: planchange
planchange: controlplane ## Change the address plan of a running cluster in every way there is, under the checker. NODES=500
	go test ./test/integration -run '^TestLongPlanChange$$' -count=1 -timeout 60m -v \
		-planchange.nodes=$(PLAN_NODES) -planchange.patience=10m

##@ Address map

.PHONY: map-test
map-test: controlplane ## Test the address map in Chromium, which it installs on Debian as root; fails where it cannot. RUN=regexp
	hack/chromium.sh
	cd test/map && go test -count=1 -timeout 30m -v $(if $(filter command line environment,$(origin RUN)),-run '$(RUN)') ./...

.PHONY: screenshots
screenshots: ## Make the pictures of docs/images, of what "make up" runs. SCENE=map-4096
	hack/chromium.sh
	go build -o $(BIN)/ ./cmd/kubectl-cilium_pool
	cd test/map && KUBECONFIG=$(CURDIR)/.run/kubeconfig go run ./screenshots \
		-plugin $(CURDIR)/$(BIN)/kubectl-cilium_pool -out $(CURDIR)/docs/images -only '$(SCENE)'

##@ Code

.PHONY: generate
generate: deepcopy crds docs/api.md chart-docs ## Write everything that is generated: deepcopy, CRDs, docs/api.md, the chart's README, SECURITY.md.

.PHONY: fmt
fmt: ## Format all Go code.
	gofmt -l -w $(GO_DIRS)

# tool NAME,MODULE,PACKAGE builds hack/tools/NAME, a module of its own so that
# the dependencies of one tool never meet those of another or of the operator.
define tool
$(1) := $(CURDIR)/.cache/tools/$(1)-$(call mod-version,hack/tools/$(1),$(2))
$$($(1)): hack/tools/$(1)/go.mod
	@echo "building $$(notdir $$@): once, about $(4) on two cores"
	cd hack/tools/$(1) && go build -v $(5) -o $$@ $(3) $(call progress,$(1))
	@touch $$@
endef
$(eval $(call tool,actionlint,github.com/rhysd/actionlint,github.com/rhysd/actionlint/cmd/actionlint,20 seconds))
$(eval $(call tool,controller-gen,sigs.k8s.io/controller-tools,sigs.k8s.io/controller-tools/cmd/controller-gen,1 minute))
$(eval $(call tool,crd-ref-docs,github.com/elastic/crd-ref-docs,github.com/elastic/crd-ref-docs,1 minute))
$(eval $(call tool,golangci-lint,github.com/golangci/golangci-lint/v2,github.com/golangci/golangci-lint/v2/cmd/golangci-lint,4 minutes))
$(eval $(call tool,cosign,github.com/sigstore/cosign/v3,github.com/sigstore/cosign/v3/cmd/cosign,5 minutes))
$(eval $(call tool,crane,github.com/google/go-containerregistry,github.com/google/go-containerregistry/cmd/crane,1 minute))
$(eval $(call tool,govulncheck,golang.org/x/vuln,golang.org/x/vuln/cmd/govulncheck,20 seconds))
$(eval $(call tool,helm,helm.sh/helm/v4,helm.sh/helm/v4/cmd/helm,3 minutes))
$(eval $(call tool,helm3,helm.sh/helm/v3,helm.sh/helm/v3/cmd/helm,3 minutes))
$(eval $(call tool,promtool,github.com/prometheus/prometheus,github.com/prometheus/prometheus/cmd/promtool,2 minutes,-tags remove_all_sd))

.PHONY: lint
lint: $(golangci-lint) ## Run golangci-lint, and go vet on the modules that import this one: no other test builds those.
	GOMAXPROCS=2 $(golangci-lint) run --concurrency 2 ./...
	cd test/map && go vet ./...
	cd test/bench/alloc && go vet ./...

.PHONY: deepcopy
deepcopy: $(controller-gen)
	$(controller-gen) object paths=./pkg/crd/v1alpha1

.PHONY: crds
crds: $(controller-gen)
	$(controller-gen) crd paths=./pkg/crd/v1alpha1 output:crd:dir=pkg/crd/crds
	go run ./hack/crdbounds pkg/crd/crds/cilium-pool.io_podippools.yaml
	go run ./hack/crdschema pkg/crd/crds/*.yaml
	cp pkg/crd/crds/*.yaml $(CHART)/files/crds/

.PHONY: docs/api.md
docs/api.md: $(crd-ref-docs)
	$(crd-ref-docs) --log-level ERROR --source-path pkg/crd/v1alpha1 --config hack/api-docs/config.yaml \
		--templates-dir hack/api-docs --renderer markdown --output-path $@

##@ Chart and image

.PHONY: helm
helm: $(helm) $(helm3) ## Build Helm 4 and 3, by which the chart is tested.

.PHONY: chart-docs
chart-docs: $(helm) # The table of values in the chart's README, and that of rights in SECURITY.md.
	go run -C hack/chartdocs . $(CURDIR)/$(CHART)
	go run -C hack/chartdocs ./rights $(helm) $(CURDIR)/$(CHART) $(CURDIR)/SECURITY.md

.PHONY: alerts-test
alerts-test: $(helm) $(promtool) ## Test the chart's alerts by promtool, and all queries against the metrics there are.
	cd test/alerts && go test -count=1 ./...

# Needs Node and npm, so no other target asks for it.
.PHONY: dashboard-check
dashboard-check: ## Hold the chart's dashboard to Grafana's own schema. Needs Node and npm.
	mkdir -p .cache/grafana
	cp hack/grafana/* .cache/grafana/
	cd .cache/grafana && npm ci --no-audit --no-fund && node check.mjs $(CURDIR)/$(CHART)/files/dashboard.json

.PHONY: chart-lint
chart-lint: $(helm) ## Run helm lint on the chart, with its own values and with those of examples/.
	$(helm) lint --strict $(CHART)
	$(helm) lint --strict $(CHART) -f examples/values.yaml -f examples/values-pools.yaml -f examples/values-monitoring.yaml

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
IMAGE ?= ghcr.io/cilium-pool/cilium-pool-operator
ARCH ?= $(shell go env GOARCH)
IMAGE_DIR := .cache/image/$(ARCH)

.PHONY: image
# The tag that the chart asks for, unless a version is given.
image: IMAGE_TAG ?= $(if $(filter command line environment,$(origin VERSION)),$(VERSION),$(shell awk '$$1 == "appVersion:" {print $$2}' $(CHART)/Chart.yaml))
image: ## Build the container image as a file for docker load, with the tag that the chart asks for. No daemon needed. ARCH=arm64, VERSION=, IMAGE=
	GOOS=linux GOARCH=$(ARCH) go build -buildvcs=false \
		-ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)' \
		-o $(IMAGE_DIR)/cilium-pool-operator ./cmd/cilium-pool-operator
	go run -C hack/image . -binary $(CURDIR)/$(IMAGE_DIR)/cilium-pool-operator -tag $(IMAGE):$(IMAGE_TAG) \
		-platform linux/$(ARCH) -revision '$(COMMIT)' -source https://github.com/cilium-pool/cilium-pool-operator \
		-out $(CURDIR)/$(IMAGE_DIR)/cilium-pool-operator.tar

##@ Release

# A release has a tag; anything else is built as a version below all of them.
RELEASE_VERSION := $(if $(filter v%,$(VERSION)),$(VERSION),v0.0.0-g$(VERSION))
# The time of all that is packed: the commit's.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
DIST ?= dist
PLATFORMS ?=
RELEASE_WORK := .cache/release

.PHONY: snapshot
snapshot: $(helm) ## Build all files of a release into dist, publish nothing. PLATFORMS=linux/amd64, VERSION=, DIST=
	go run -C hack/release . -version '$(RELEASE_VERSION)' -commit '$(COMMIT)' -epoch '$(SOURCE_DATE_EPOCH)' \
		-root $(CURDIR) -work $(CURDIR)/$(RELEASE_WORK) -out $(abspath $(DIST)) -helm $(helm) -image $(IMAGE) -only '$(PLATFORMS)'

.PHONY: release-test
release-test: ## Test what builds releases: archives, SBOM, krew manifest, image index.
	cd hack/release && go test ./...
	cd hack/image && go test ./...

.PHONY: reproducible
reproducible: PLATFORMS := $(or $(PLATFORMS),linux/$(ARCH))
reproducible: $(helm) ## Build HEAD's files twice, in two folders, the second with an empty build cache; fails if a byte differs. PLATFORMS=all
	hack/reproducible.sh '$(filter-out all,$(PLATFORMS))' $(helm)

.PHONY: vulnerabilities
vulnerabilities: $(govulncheck) ## Check whether this module calls code with a known vulnerability. Needs vuln.go.dev.
	$(govulncheck) ./...

.PHONY: workflows
workflows: $(actionlint) ## Check .github/workflows.
	$(actionlint) -no-color -shellcheck= -pyflakes= .github/workflows/*.yaml

.PHONY: publish
publish: $(cosign) $(crane) $(helm) ## Push and sign what "make snapshot" built for a tag. For the release workflow: see docs/release.md.
	hack/publish.sh '$(RELEASE_VERSION)' $(abspath $(DIST)) $(IMAGE) $(cosign) $(crane) $(helm)

##@ Routers

SPEAKER ?= bird

.PHONY: bgp-try
bgp-try: demo-binaries ## Let BIRD or FRR announce a real control plane's prefixes to a router, and withdraw them. Needs root, bird2, iproute2. SPEAKER=frr
	@go build -o $(BIN)/ ./cmd/kubectl-cilium_pool
	hack/bgp-try.sh $(BIN)/chaos $(BIN)/kubectl-cilium_pool $(BIN)/kubectl .run/bgp $(SPEAKER)

##@ Control plane

PARTS := test/controlplane/parts
kubernetes-version := $(call mod-version,$(PARTS),k8s.io/kubernetes)
# kubernetes-ldflags-of VERSION
kubernetes-ldflags-of = -s -w -X k8s.io/component-base/version.gitVersion=$(1) \
	-X k8s.io/component-base/version.gitMajor=1 \
	-X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(1)))
kubernetes-ldflags := $(call kubernetes-ldflags-of,$(kubernetes-version))

.PHONY: controlplane
controlplane: $(BIN)/etcd $(BIN)/kubectl $(BIN)/kube-apiserver ## Build etcd, kube-apiserver and kubectl, on which the tests run.

# part NAME,TIME,LDFLAGS
define part
$(BIN)/$(1): $(PARTS)/$(1)/main.go $(PARTS)/go.mod $(PARTS)/go.sum
	@echo "building $(1): once, about $(2) on two cores"
	cd $(PARTS) && go build -v -ldflags '$(3)' -o $(CURDIR)/$$@ ./$(1) $(call progress,$(1))
	@touch $$@
endef
$(eval $(call part,etcd,1 minute,-s -w))
$(eval $(call part,kubectl,2 minutes,$(kubernetes-ldflags)))
$(eval $(call part,kube-apiserver,5 minutes,$(kubernetes-ldflags)))
# One of the benchmark's peers, and a part of the real cluster.
$(eval $(call part,kube-controller-manager,2 minutes,$(kubernetes-ldflags)))

# Cilium's own allocator, which the stand-in agents are compared with.
$(BIN)/cilium-ipam: $(wildcard test/truth/cilium-ipam/*.go) test/truth/cilium-ipam/go.mod test/truth/cilium-ipam/go.sum
	@echo "building cilium-ipam: once, about 3 minutes on two cores"
	cd test/truth/cilium-ipam && go build -v -o $(CURDIR)/$@ . $(call progress,$(@F))
	@touch $@

##@ Real Cilium

CILIUM_PARTS := test/cilium
cilium-default := $(call mod-version,$(CILIUM_PARTS),github.com/cilium/cilium)
CILIUM ?= $(cilium-default)
# Another version has a file of its own beside go.mod, such as v1.19.5.mod.
cilium-source-mod := $(CURDIR)/$(CILIUM_PARTS)/$(if $(filter $(cilium-default),$(CILIUM)),go.mod,$(CILIUM).mod)
# With test/cilium/patches applied it is a copy, which PATCHED=1 builds.
cilium-patched := $(CURDIR)/.cache/cilium-patched
cilium-mod := $(if $(PATCHED),$(cilium-patched)/go.mod,$(cilium-source-mod))
cilium-dir := $(BIN)/cilium-$(CILIUM:v%=%)$(if $(PATCHED),-patched)
cilium-ldflags := -s -w -X github.com/cilium/cilium/pkg/version.ciliumVersion=$(CILIUM:v%=%)
RUN ?= all

# Of another version, or a patched one, the agent, its plugin and what it runs beside are enough, but for the other modes.
cilium-programs := cilium-agent cilium-cni cilium-health-responder wireguard $(if $(filter $(cilium-default),$(CILIUM)$(PATCHED)),cilium-dbg cilium-operator,$(if $(findstring modes,$(RUN)),cilium-operator))

.PHONY: cilium
cilium: $(addprefix $(cilium-dir)/,$(cilium-programs) bpf/COPYING chart/Chart.yaml) ## Build the real Cilium that make e2e runs.

# cilium-part NAME,TIME,FLAGS,PACKAGE
define cilium-part
$(cilium-dir)/$(1): $(wildcard $(CILIUM_PARTS)/$(1)/main.go) $(cilium-mod) $(cilium-mod:%.mod=%.sum)
	@echo "building $(1): once, about $(2) on two cores"
	cd $(CILIUM_PARTS) && go build -v -modfile=$(cilium-mod) $(3) -ldflags '$(cilium-ldflags)' -o $(CURDIR)/$$@ $(4) $(call progress,$(1))
	@touch $$@
endef
$(eval $(call cilium-part,cilium-agent,4 minutes,,./cilium-agent))
$(eval $(call cilium-part,cilium-dbg,30 seconds,,./cilium-dbg))
# Their mains differ from version to version, so they are Cilium's own.
$(eval $(call cilium-part,cilium-cni,15 seconds,,github.com/cilium/cilium/plugins/cilium-cni))
$(eval $(call cilium-part,cilium-operator,1 minute,-tags ipam_provider_operator,$(if $(filter $(cilium-default),$(CILIUM)),./cilium-operator,github.com/cilium/cilium/operator)))

# What the agent's image has beside. Scenarios with health checking need the last, the real cluster all.
$(eval $(call cilium-part,cilium-mount,10 seconds,,github.com/cilium/cilium/tools/mount))
$(eval $(call cilium-part,cilium-sysctlfix,10 seconds,,github.com/cilium/cilium/tools/sysctlfix))
$(eval $(call cilium-part,cilium-health-responder,10 seconds,,github.com/cilium/cilium/cilium-health/responder))
# WireGuard as a program, where the kernel has none. Its module is one that Cilium requires.
$(eval $(call cilium-part,wireguard,10 seconds,,golang.zx2c4.com/wireguard))

$(cilium-patched)/go.mod: hack/patch-cilium.sh $(cilium-source-mod) $(wildcard $(CILIUM_PARTS)/patches/*.patch)
	hack/patch-cilium.sh $(@D)
$(cilium-patched)/go.sum: $(cilium-patched)/go.mod

# The datapath's sources, which the agent compiles for each node, and the chart,
# which makes the agent's configuration.
cilium-source = $$(cd $(CILIUM_PARTS) && go mod download -modfile=$(cilium-source-mod) github.com/cilium/cilium && go list -modfile=$(cilium-source-mod) -m -f '{{.Dir}}' github.com/cilium/cilium)
$(cilium-dir)/bpf/COPYING: cilium-folder := bpf
$(cilium-dir)/chart/Chart.yaml: cilium-folder := install/kubernetes/cilium
$(cilium-dir)/bpf/COPYING $(cilium-dir)/chart/Chart.yaml: $(cilium-source-mod)
	rm -rf $(@D)
	mkdir -p $(cilium-dir)
	cp -r "$(cilium-source)/$(cilium-folder)" $(@D)
	chmod -R u+w $(@D)
	touch $@

# The router that scenarios with BGP peer agents with.
$(BIN)/bgp-router: $(wildcard test/bgp/*.go) test/bgp/go.mod test/bgp/go.sum
	@echo "building $(@F): once, about 1 minute on two cores"
	cd test/bgp && go test . && go build -o $(CURDIR)/$@ .

.PHONY: e2e
e2e: controlplane cilium $(helm) $(if $(findstring modes,$(RUN)),$(BIN)/bgp-router) $(if $(or $(findstring schedule,$(RUN)),$(filter all,$(or $(RUN),all))),$(BIN)/kube-scheduler) ## Run the operator with real Cilium; needs root. RUN=all, ci, migrate, modes, or join,surge; CILIUM=v1.19.5, PATCHED=1
	hack/e2e-packages.sh
	go build -o $(BIN)/ ./cmd/cilium-pool-operator ./cmd/kubectl-cilium_pool ./test/e2e
	CCACHE_DIR=$(CURDIR)/.cache/ccache $(BIN)/e2e -run '$(RUN)' -bin $(BIN) -cilium $(cilium-dir) $(if $(PATCHED),-patched) -helm $(helm) $(call or-skipped,e2e)

##@ Real cluster

CLUSTER := test/cluster
CLUSTER_IMAGES := .cache/cluster/images
comma := ,
space := $() $()
# NODES of the demo is 20, RUN of e2e is all; here they are 3 and ci unless given.
CLUSTER_NODES := $(if $(filter command line environment,$(origin NODES)),$(NODES),3)
CLUSTER_RUN := $(if $(filter command line environment,$(origin RUN)),$(RUN),ci)
# cluster-runs SCENARIO is empty unless RUN has that scenario.
cluster-runs = $(filter all $1,$(subst $(comma),$(space),$(CLUSTER_RUN)))
containerd-version := $(call mod-version,$(CLUSTER)/parts/containerd,github.com/containerd/containerd/v2)

# cluster-part NAME,TIME
define cluster-part
$(BIN)/$(1): $(CLUSTER)/parts/kube/$(1)/main.go $(CLUSTER)/parts/kube/go.mod $(CLUSTER)/parts/kube/go.sum
	@echo "building $(1): once, about $(2) on two cores"
	cd $(CLUSTER)/parts/kube && go build -ldflags '$(kubernetes-ldflags)' -o $(CURDIR)/$$@ ./$(1)
	@touch $$@
endef
$(eval $(call cluster-part,kube-scheduler,30 seconds))
$(eval $(call cluster-part,kubelet,2 minutes))

# The scenario kubelet upgrades from it. Its module file is beside go.mod.
OLD_KUBELET := v1.35.4
old-kubelet := $(BIN)/kubelet-$(OLD_KUBELET:v%=%)/kubelet
$(old-kubelet): $(CLUSTER)/parts/kube/$(OLD_KUBELET).mod $(CLUSTER)/parts/kube/$(OLD_KUBELET).sum
	@echo "building kubelet $(OLD_KUBELET): once, about 2 minutes on two cores"
	cd $(CLUSTER)/parts/kube && go build -modfile=$(OLD_KUBELET).mod -o $(CURDIR)/$@ \
		-ldflags '$(call kubernetes-ldflags-of,$(OLD_KUBELET))' ./kubelet
	@touch $@

# NODES of the demo is 20, and RUN of the suites above all; here they are what the program
# says unless given.
schedule-given = $(if $(filter command line environment,$(origin $(1))),-$(2)=$($(1)))
BINDS ?= 10000

.PHONY: schedule
schedule: controlplane $(helm) $(BIN)/kube-scheduler ## Let the real kube-scheduler bind pods by the addresses that Nodes offer, on nearly full pools while all changes; fails if one lacks an address. BINDS=10000 NODES=40 PLANT=1; or RUN=exact: 1,000 pods on 1,000 addresses
	@echo "building the operator and the program: up to 2 minutes the first time"
	@go build -o $(BIN)/ ./cmd/cilium-pool-operator ./test/schedule
	@$(BIN)/schedule -binds=$(BINDS) $(call schedule-given,RUN,run) $(call schedule-given,NODES,nodes) $(if $(PLANT),-plant)

# containerd-part NAME,TIME
define containerd-part
$(BIN)/$(1): $(CLUSTER)/parts/containerd/go.mod $(CLUSTER)/parts/containerd/go.sum
	@echo "building $(1): once, about $(2) on two cores"
	cd $(CLUSTER)/parts/containerd && go build -tags 'no_btrfs no_zfs no_devmapper no_aufs' \
		-ldflags '-s -w -X github.com/containerd/containerd/v2/version.Version=$(containerd-version)' \
		-o $(CURDIR)/$$@ github.com/containerd/containerd/v2/cmd/$(1)
	@touch $$@
endef
$(eval $(call containerd-part,containerd,3 minutes))
$(eval $(call containerd-part,containerd-shim-runc-v2,10 seconds))
$(eval $(call containerd-part,ctr,10 seconds))

$(BIN)/coredns: $(wildcard $(CLUSTER)/parts/coredns/*)
	@echo "building coredns: once, about 1 minute on two cores"
	cd $(CLUSTER)/parts/coredns && go build -ldflags '-s -w' -o $(CURDIR)/$@ .
	@touch $@

# Of the ways to find targets only Kubernetes' own is built in.
$(BIN)/prometheus: $(wildcard $(CLUSTER)/parts/prometheus/*)
	@echo "building prometheus: once, about 5 minutes on two cores"
	cd $(CLUSTER)/parts/prometheus && go build -tags netgo,remove_all_sd,enable_kubernetes_sd -ldflags '-s -w' \
		-o $(CURDIR)/$@ github.com/prometheus/prometheus/cmd/prometheus
	@touch $@

$(BIN)/pause $(BIN)/probe: $(BIN)/%: $(wildcard $(CLUSTER)/parts/pause/*.go $(CLUSTER)/parts/probe/*.go)
	go build -ldflags '-s -w' -o $@ ./$(CLUSTER)/parts/$*
	@touch $@

# cluster-image NAME,BINARY,REFERENCE packs one static program.
define cluster-image
$(CLUSTER_IMAGES)/$(1).tar: $(BIN)/$(1) hack/image/main.go
	mkdir -p $$(@D)
	go run -C hack/image . -binary $(CURDIR)/$$< -tag $(2) -platform linux/$(ARCH) -out $(CURDIR)/$$@
endef
$(eval $(call cluster-image,pause,registry.k8s.io/pause:3.10))
$(eval $(call cluster-image,probe,localhost/probe:1))
$(eval $(call cluster-image,prometheus,localhost/prometheus:1))
$(eval $(call cluster-image,coredns,registry.k8s.io/coredns/coredns:$(call mod-version,$(CLUSTER)/parts/coredns,github.com/coredns/coredns)))

cilium-image-programs := $(addprefix $(cilium-dir)/,cilium-agent cilium-cni cilium-dbg cilium-operator cilium-mount cilium-sysctlfix cilium-health-responder)
.cache/cluster/rootfs/etc/debian_version: $(CLUSTER)/images/debian.sh
	@echo "unpacking Debian for Cilium's image: once, about 3 minutes"
	$(CLUSTER)/images/debian.sh $(CURDIR)/.cache/cluster/rootfs
$(CLUSTER_IMAGES)/cilium-$(CILIUM).tar: .cache/cluster/rootfs/etc/debian_version $(cilium-image-programs) $(cilium-dir)/bpf/COPYING $(CLUSTER)/images/cilium.sh
	@echo "packing Cilium's image: once, about 1 minute on two cores"
	mkdir -p $(@D)
	$(CLUSTER)/images/cilium.sh $(CURDIR)/.cache/cluster/rootfs $(CURDIR)/$(cilium-dir) "$(cilium-source)" $(CILIUM) $(CURDIR)/$@

.PHONY: cluster-parts
cluster-parts: cluster-packages controlplane $(addprefix $(BIN)/,kube-controller-manager kube-scheduler kubelet containerd containerd-shim-runc-v2 ctr) \
		$(addprefix $(CLUSTER_IMAGES)/,cilium-$(CILIUM).tar pause.tar probe.tar coredns.tar) $(cilium-dir)/chart/Chart.yaml $(helm) $(helm3) ## Build what the real cluster runs: 25 minutes the first time.

# The scenario cilium upgrades from it.
OLD_CILIUM := v1.19.5
old-cilium-files := $(CLUSTER_IMAGES)/cilium-$(OLD_CILIUM).tar $(BIN)/cilium-$(OLD_CILIUM:v%=%)/chart/Chart.yaml
.PHONY: cluster-old-cilium
cluster-old-cilium: cluster-packages
	@$(MAKE) --no-print-directory CILIUM=$(OLD_CILIUM) $(old-cilium-files)

# The scenario operator upgrades from it: the last commit without PodIPPoolHistory.
OLD_OPERATOR ?= d4dd8e2d84d986a5b2abd0a8ee4f352ad0b5dc70
old-operator := .cache/cluster/operator-$(OLD_OPERATOR)
$(old-operator)/image.tar: | $(helm)
	@echo "building the operator of commit $(OLD_OPERATOR): once, about 1 minute on two cores"
	rm -rf $(@D) && mkdir -p $(@D)/source
	git archive $(OLD_OPERATOR) | tar -x -C $(@D)/source
	@$(MAKE) --no-print-directory -C $(@D)/source image VERSION=v0.0.1 COMMIT=$(OLD_OPERATOR)
	$(helm) package $(@D)/source/$(CHART) --version 0.0.1 --app-version v0.0.1 --destination $(@D)
	mv $(@D)/source/$(IMAGE_DIR)/cilium-pool-operator.tar $@

.PHONY: cluster-packages
cluster-packages:
	hack/cluster-packages.sh

cluster-operator := $(IMAGE_DIR)/cilium-pool-operator.tar
.PHONY: cluster-program
cluster-program: cluster-parts $(if $(call cluster-runs,cilium),cluster-old-cilium) $(if $(call cluster-runs,operator),$(old-operator)/image.tar) \
		$(if $(call cluster-runs,kubelet),$(old-kubelet)) \
		$(if $(call cluster-runs,integrations)$(call cluster-runs,integrations-prometheus),$(CLUSTER_IMAGES)/prometheus.tar)
	@echo "building the operator's image: up to 2 minutes the first time"
	@$(MAKE) --no-print-directory image
	@go build -o $(BIN)/ ./$(CLUSTER) ./cmd/kubectl-cilium_pool

# Calico's CRDs; nothing of it is built.
calico-crds = $(shell cd $(CLUSTER)/parts/calico && go mod download github.com/projectcalico/calico && \
	go list -m -f '{{.Dir}}' github.com/projectcalico/calico)/libcalico-go/config/crd
cluster-flags = -cilium $(cilium-dir)/chart $(if $(call cluster-runs,calico),-calico $(calico-crds)) -old-cilium $(BIN)/cilium-$(OLD_CILIUM:v%=%)/chart \
	-old-image $(CURDIR)/$(CLUSTER_IMAGES)/cilium-$(OLD_CILIUM).tar -old-operator $(old-operator) -old-kubelet $(old-kubelet) -helm $(helm) -helm3 $(helm3) -nodes $(CLUSTER_NODES) -operator $(cluster-operator) \
	-images $(subst $(space),$(comma),$(addprefix $(CURDIR)/$(CLUSTER_IMAGES)/,cilium-$(CILIUM).tar pause.tar probe.tar coredns.tar)) $(if $(DIFF_FOR),-diff-for $(DIFF_FOR))

.PHONY: cluster
cluster: cluster-program ## Run scenarios on a real Kubernetes cluster with Cilium; needs root. SKIPPED where the machine cannot. RUN=ci, all, or install,scale; DIFF_FOR=10m
	@$(BIN)/cluster run $(cluster-flags) -run '$(CLUSTER_RUN)' $(call or-skipped,cluster)

.PHONY: cluster-up
cluster-up: cluster-program ## Start one, install Cilium and the operator as docs/install.md says, and leave it, with .run/cluster/kubeconfig. NODES=3
	@$(BIN)/cluster up $(cluster-flags)

.PHONY: cluster-down
cluster-down: ## Remove what "make cluster-up", or a killed "make cluster", left.
	@go build -o $(BIN)/cluster ./$(CLUSTER)
	@$(BIN)/cluster down

##@ Measure

# With PKG given, bench is bench-core: make bench PKG=./pkg/ipalloc.
.PHONY: bench
ifeq ($(origin PKG),command line)
bench: bench-core
else
bench: bench-all ## Measure the whole operator beside peers and bare programs; writes docs/performance.md. 90 minutes. NODES=5000 BENCH=flags
endif

.PHONY: bench-core
bench-core: ## Run the Go benchmarks, with allocations. BENCHTIME=1s, PKG=./...
	go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) -timeout 60m $(PKG)

BENCH ?=
# NODES of the demo is 20; here it is 5000 unless given.
BENCH_NODES := $(if $(filter command line environment,$(origin NODES)),$(NODES),5000)

.PHONY: bench-binaries
bench-binaries: controlplane
	go build -o $(BIN)/ ./cmd/cilium-pool-operator ./test/bench

.PHONY: bench-quick
bench-quick: bench-binaries ## The same in small, in minutes; fails where counted writes, reads or allocations are not what they must be.
	$(BIN)/bench quick -nodes=100 $(BENCH)

.PHONY: bench-all
bench-all: bench-binaries $(BIN)/kube-controller-manager $(BIN)/cilium-$(cilium-default:v%=%)/cilium-operator
	$(BIN)/bench run -nodes=$(BENCH_NODES) $(BENCH)
	$(if $(BENCH),,$(MAKE) bench-alloc)
	$(BIN)/bench report

BENCH_ALLOC := test/bench/results/alloc.txt

.PHONY: bench-alloc
bench-alloc: ## Measure the allocator beside Kubernetes' and Cilium's own.
	printf 'commit: %s\ndate: %s\n' $$(git describe --always --dirty --exclude='*' --abbrev=12) $$(date -u +%F) > $(BENCH_ALLOC)
	cd test/bench/alloc && go test -run '^$$' -bench . -benchmem -benchtime 0.3s -timeout 30m . | tee -a $(CURDIR)/$(BENCH_ALLOC)

##@ Clean up

.PHONY: clean
clean: ## Delete .cache and dist: built binaries, tools and files of a release.
	rm -rf .cache dist
