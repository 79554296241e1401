# Tools that Go's module proxy builds, and what they generate.

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
$(eval $(call tool,frr-k8s,github.com/metallb/frr-k8s,github.com/metallb/frr-k8s/cmd/frr-k8s-controller,3 minutes))
$(eval $(call tool,golangci-lint,github.com/golangci/golangci-lint/v2,github.com/golangci/golangci-lint/v2/cmd/golangci-lint,4 minutes))
$(eval $(call tool,cosign,github.com/sigstore/cosign/v3,github.com/sigstore/cosign/v3/cmd/cosign,5 minutes))
$(eval $(call tool,crane,github.com/google/go-containerregistry,github.com/google/go-containerregistry/cmd/crane,1 minute))
$(eval $(call tool,govulncheck,golang.org/x/vuln,golang.org/x/vuln/cmd/govulncheck,20 seconds))
$(eval $(call tool,gremlins,github.com/go-gremlins/gremlins,github.com/go-gremlins/gremlins/cmd/gremlins,20 seconds))
$(eval $(call tool,helm,helm.sh/helm/v4,helm.sh/helm/v4/cmd/helm,3 minutes))
$(eval $(call tool,helm3,helm.sh/helm/v3,helm.sh/helm/v3/cmd/helm,3 minutes))
$(eval $(call tool,promtool,github.com/prometheus/prometheus,github.com/prometheus/prometheus/cmd/promtool,2 minutes,-tags remove_all_sd))

.PHONY: helm
helm: $(helm) $(helm3) # Build Helm 4 and 3, by which the chart is tested.

.PHONY: deepcopy
deepcopy: $(controller-gen)
	cd api && $(controller-gen) object paths=./v1alpha1

.PHONY: crds
crds: $(controller-gen)
	cd api && $(controller-gen) crd paths=./v1alpha1 output:crd:dir=$(CURDIR)/pkg/crd/crds
	go run ./hack/crds pkg/crd/crds/*.yaml
	cp pkg/crd/crds/*.yaml $(CHART)/files/crds/

.PHONY: docs/reference/api.md
docs/reference/api.md: $(crd-ref-docs)
	$(crd-ref-docs) --log-level ERROR --source-path api/v1alpha1 --config hack/api-docs/config.yaml \
		--templates-dir hack/api-docs --renderer markdown --output-path $@

.PHONY: chart-docs
chart-docs: $(helm) # The table of values in the chart's README, and that of rights in SECURITY.md.
	go run -C hack/chartdocs . $(CURDIR)/$(CHART)
	go run -C hack/chartdocs ./rights $(helm) $(CURDIR)/$(CHART) $(CURDIR)/SECURITY.md
