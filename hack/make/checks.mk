# Checks beside the tests, and measurements.

##@ Prove

.PHONY: house
house: controlplane ## Measure the repository beside its targets: lines, words, files on the way of a join.
	go run ./hack/house

SEEDS ?= 1000
STEPS ?= 500

.PHONY: sim
sim: ## Simulate so many seeded worlds around the operator; fails if a rule broke. SEEDS=1000 SEED=1 STEPS=500 MODE=crd|multi-pool|kubernetes|delegated-plugin
	go run ./test/sim -seed=$(or $(SEED),1) -seeds=$(SEEDS) -steps=$(STEPS) $(if $(MODE),-mode=$(MODE))

.PHONY: points
points: # Inject every fault at every write, event and agent step of reference scenarios; fails if a rule broke. SCENARIOS=join,grow FAULTS=killed-after
	go run ./test/sim/points $(if $(SCENARIOS),-scenarios=$(SCENARIOS)) $(if $(FAULTS),-faults=$(FAULTS))

.PHONY: model
model: # Visit every state of a model of the address protocol; fails if a rule broke or something waits for ever. ROWS=agent-window STORY=1
	go run ./test/model $(if $(ROWS),-rows='$(ROWS)') $(if $(STORY),-story)

.PHONY: mutants
mutants: controlplane ## Plant known faults in the operator's code; fails if one goes unseen. RUN=regexp, CHECKS=unit,sim, ALL=1, KEY=1, PROTOCOL=1
	go build -o $(BIN)/ ./test/mutants
	exec $(BIN)/mutants -run '$(RUN)' $(if $(CHECKS),-checks='$(CHECKS)') $(if $(ALL),-all-checks) $(if $(KEY),-key) $(if $(PROTOCOL),-protocol)

BASE ?= origin/main
.PHONY: mutants-changed
mutants-changed: controlplane # Plant the mutants of the files that differ from a commit. BASE=origin/main, CHECKS=
	go build -o $(BIN)/ ./test/mutants
	files=$$(git diff --name-only --diff-filter=d '$(BASE)...' -- pkg cmd | paste -sd,); \
	exec $(BIN)/mutants -files "$$files" $(if $(CHECKS),-checks='$(CHECKS)')

GUARDED := $(addprefix ./pkg/,ipalloc expand state ciliumnode crd exclude controller/node controller/pool)
.PHONY: mutation
mutation: test-needs $(gremlins) # Change the code of packages at one place after the other; fails if their own tests miss more than a tenth. Hours. PKG=./pkg/ipalloc
	hack/mutation.sh $(gremlins) $(call given,PKG,$(GUARDED))

# These need a ServiceCIDR (Kubernetes 1.33) or a MutatingAdmissionPolicy (1.36).
NEWER_KUBERNETES := TestScripts/^plan$$|TestPodsRequestAddresses|TestPoliciesBesideAnotherMutation|TestOffers|TestGrowthForUnscheduledPods|TestRecallForUnscheduledPods|TestPodsFillPoolOfWholeBlocks
.PHONY: test-oldest
test-oldest: test-needs $(addprefix $(oldest-bin)/,kube-apiserver etcd kubectl) # Run the suites of API, chart, plugin, audit and integration on the oldest Kubernetes that the chart allows. PKG=./test/chart
	CPO_BIN_DIR=$(CURDIR)/$(oldest-bin) $(TEST) -skip '^TestLong|$(NEWER_KUBERNETES)' \
		$(call given,PKG,$(addprefix ./test/,api chart plugin audit integration))
	@echo 'left out, for want of newer kinds: $(NEWER_KUBERNETES)'

.PHONY: fuzz
fuzz: # Fuzz each fuzz target in turn. FUZZTIME=20s, PKG=./...
	hack/fuzz.sh $(FUZZTIME) $(PKG)

# NODES of the demo is 20; here it is 200 unless given.
CHAOS_NODES := $(call given,NODES,200)

.PHONY: chaos
chaos: FAULTS ?= 60s
chaos: COUNT ?= 1
chaos: demo-binaries $(if $(filter versions,$(RUN)),$(older-operator)/cilium-pool-operator) ## Kill, cut off and edit all there is under 200 nodes, then see that all settles. RUN=processes|network|versions|soak NODES=200 FAULTS=60s COUNT=1 MODE=crd|multi-pool|kubernetes SEED=
	@$(BIN)/chaos --faults=$(FAULTS) --count=$(COUNT) --nodes=$(CHAOS_NODES) \
		$(if $(filter command line environment,$(origin RUN)),--run=$(RUN)) $(if $(filter versions,$(RUN)),--older=$(older-operator)/cilium-pool-operator) $(if $(MODE),--mode=$(MODE)) $(if $(SEED),--seed=$(SEED))

SPEAKER ?= bird

.PHONY: bgp-try
ifeq ($(SPEAKER),frr-k8s)
bgp-try: demo-binaries $(frr-k8s)
	hack/frr-k8s-try.sh $(BIN)/chaos $(BIN)/kubectl $(frr-k8s) "$$(go list -C hack/tools/frr-k8s -m -f '{{.Dir}}' github.com/metallb/frr-k8s)" .run/bgp
else
bgp-try: demo-binaries # Let BIRD, FRR or frr-k8s announce a real control plane's prefixes to a router, and withdraw them. Needs root, bird2, iproute2, frr. SPEAKER=frr, frr-k8s
	@go build -o $(BIN)/ ./cmd/kubectl-cilium_pool
	hack/bgp-try.sh $(BIN)/chaos $(BIN)/kubectl-cilium_pool $(BIN)/kubectl .run/bgp $(SPEAKER)
endif

.PHONY: map-test
map-test: # Test the address map in Chromium, which it installs on Debian as root; fails where it cannot. RUN=regexp
	hack/chromium.sh
	cd test/map && go test -count=1 -timeout 30m -v $(if $(filter command line environment,$(origin RUN)),-run '$(RUN)') ./...

.PHONY: screenshots
screenshots: demo-binaries # Make the pictures of docs/images: of a made-up cluster, and of a control plane with light agents, which it starts and stops.
	hack/chromium.sh
	go build -o $(BIN)/ ./cmd/kubectl-cilium_pool
	trap '$(BIN)/chaos down --run-dir=.run/screenshots' EXIT; \
	$(BIN)/chaos up --nodes=40 --run-dir=.run/screenshots; \
	for load in 02=27 03=80 05=12 06=118 08=55 09=160 11=30 13=70 14=9 16=98 17=44 20=21; do \
		$(BIN)/chaos burst --run-dir=.run/screenshots --node=beijing-$${load%=*} --pods=$${load#*=}; done; \
	KUBECONFIG=$(CURDIR)/.run/screenshots/kubeconfig go run -C test/map ./screenshots \
		-plugin $(CURDIR)/$(BIN)/kubectl-cilium_pool -out $(CURDIR)/docs/images

##@ Chart

.PHONY: chart-lint
chart-lint: $(helm) # Run helm lint on the chart, with its own values and with those of examples/.
	$(helm) lint --strict $(CHART)
	$(helm) lint --strict $(CHART) -f examples/values.yaml -f examples/values-monitoring.yaml

.PHONY: alerts-test
alerts-test: $(helm) $(promtool) # Test the chart's alerts by promtool, and all queries against the metrics there are.
	cd test/alerts && go test -count=1 ./...

# Needs Node and npm, so no other target asks for it.
.PHONY: dashboard-check
dashboard-check: # Hold the chart's dashboard to Grafana's own schema. Needs Node and npm.
	mkdir -p .cache/grafana
	cp hack/grafana/* .cache/grafana/
	cd .cache/grafana && npm ci --no-audit --no-fund && node check.mjs $(CURDIR)/$(CHART)/files/dashboard.json

##@ Measure

# With PKG given, bench is bench-core: make bench PKG=./pkg/ipalloc.
.PHONY: bench
ifeq ($(origin PKG),command line)
bench: bench-core
else
bench: bench-all ## Measure the whole operator beside cilium-operator and bare programs; writes .run/bench/report.md. Two hours. NODES=5000 BENCH=flags
endif

.PHONY: bench-core
bench-core: # Run the Go benchmarks, with allocations. BENCHTIME=1s, PKG=./...
	go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) -timeout 60m $(PKG)

BENCH ?=
# NODES of the demo is 20; here it is 5000 unless given.
BENCH_NODES := $(call given,NODES,5000)

.PHONY: bench-binaries
bench-binaries: controlplane
	go build -o $(BIN)/ ./cmd/cilium-pool-operator ./test/bench

.PHONY: bench-quick
bench-quick: bench-binaries # Fail if counted writes, reads or allocations differ from the expected ones. Five minutes.
	$(BIN)/bench quick -nodes=100 $(BENCH)

.PHONY: bench-all
bench-all: bench-binaries $(BIN)/cilium-$(cilium-default:v%=%)/cilium-operator
	$(BIN)/bench run -nodes=$(BENCH_NODES) $(BENCH)
