# The image and the files of a release.

##@ Image and release

VERSION ?= $(shell git describe --tags --match 'v*' --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
IMAGE ?= ghcr.io/cilium-pool/cilium-pool-operator
ARCH ?= $(shell go env GOARCH)
IMAGE_DIR := .cache/image/$(ARCH)

# The tag that the chart asks for, unless a version is given.
IMAGE_TAG ?= $(call given,VERSION,$(shell awk '$$1 == "appVersion:" {print $$2}' $(CHART)/Chart.yaml))

.PHONY: image
image: ## Build the container image as a file for docker load, with the tag that the chart asks for. No daemon needed. ARCH=arm64, VERSION=, IMAGE=
	GOOS=linux GOARCH=$(ARCH) go build -buildvcs=false \
		-ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)' \
		-o $(IMAGE_DIR)/ ./cmd/cilium-pool-operator ./cmd/cilium-pool-ipam
	go run -C hack/release . licenses -root $(CURDIR) -platform linux/$(ARCH) -out $(CURDIR)/$(IMAGE_DIR)/licenses
	go run -C hack/image . -binary $(CURDIR)/$(IMAGE_DIR)/cilium-pool-operator -beside $(CURDIR)/$(IMAGE_DIR)/cilium-pool-ipam -licenses $(CURDIR)/$(IMAGE_DIR)/licenses \
		-tag $(IMAGE):$(IMAGE_TAG) -platform linux/$(ARCH) -revision '$(COMMIT)' -source https://github.com/cilium-pool/cilium-pool-operator \
		-out $(CURDIR)/$(IMAGE_DIR)/cilium-pool-operator.tar

.PHONY: push push-where
push-where:
	@[[ -n "$(call given,IMAGE)" ]] || { echo "say where to: make push IMAGE=registry.example.org/team/cilium-pool-operator" >&2; exit 2; }
push: push-where image $(crane) ## Push it to your own registry, for "make install". IMAGE=registry.example.org/team/cilium-pool-operator
	$(crane) push $(IMAGE_DIR)/cilium-pool-operator.tar $(IMAGE):$(IMAGE_TAG)

NAMESPACE ?= kube-system
# The user's files of values, comma-separated, and the image if another than the chart's.
install-flags = $(addprefix -f ,$(subst $(comma),$(space),$(VALUES))) $(if $(call given,IMAGE),--set image.repository=$(IMAGE)) \
	$(if $(call given,VERSION),--set image.tag=$(IMAGE_TAG)) $(HELM_FLAGS)

.PHONY: install upgrade uninstall
install: $(helm) $(crane) ## Install the operator in the cluster of your kubeconfig, by Helm. VALUES=values.yaml,more.yaml IMAGE= NAMESPACE= HELM_FLAGS= LOADED=1
upgrade: $(helm) $(crane) ## Upgrade it to this checkout, with the values that it has and those of VALUES.
uninstall: $(helm) ## Remove it. Pools, blocks and the nodes' addresses stay.
install upgrade uninstall:
	@hack/install.sh $@ $(NAMESPACE) $(helm) $(crane) $(if $(filter uninstall,$@),$(HELM_FLAGS),$(install-flags))

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
release-test: # Test what builds releases: archives, SBOM, krew manifest, image index.
	cd hack/release && go test ./...
	cd hack/image && go test ./...

.PHONY: reproducible
reproducible: PLATFORMS := $(or $(PLATFORMS),linux/$(ARCH))
reproducible: $(helm) # Build HEAD's files twice, in two folders, the second with an empty build cache; fails if a byte differs. PLATFORMS=all
	hack/reproducible.sh '$(filter-out all,$(PLATFORMS))' $(helm)

.PHONY: vulnerabilities
vulnerabilities: $(govulncheck) # Check whether this module calls code with a known vulnerability. Needs vuln.go.dev, or GOVULNDB=URL of a mirror.
	$(govulncheck) $(if $(GOVULNDB),-db '$(GOVULNDB)') ./...

.PHONY: workflows
workflows: $(actionlint) # Check .github/workflows.
	$(actionlint) -no-color -shellcheck= -pyflakes= .github/workflows/*.yaml

.PHONY: release-rehearsal
release-rehearsal: demo-binaries $(helm) $(crane) $(cosign) ## Rehearse the release of HEAD on this machine: publish to a registry of its own, verify, install, upgrade from the previous rehearsal.
	@hack/rehearsal.sh $(BIN) $(helm) $(crane) $(cosign) $(ARCH)

.PHONY: release-gate
release-gate: # Fail unless the tag that is checked out may become a release. For the release workflow: see docs/contributing/release.md.
	hack/release-gate.sh '$(RELEASE_VERSION)'

.PHONY: publish
publish: $(cosign) $(crane) $(helm) # Push and sign what "make snapshot" built for a tag. For the release workflow: see docs/contributing/release.md.
	hack/publish.sh '$(RELEASE_VERSION)' $(abspath $(DIST)) $(IMAGE) $(cosign) $(crane) $(helm)
