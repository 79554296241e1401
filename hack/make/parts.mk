# Programs of other projects on which tests run: Kubernetes, etcd, Cilium, containerd and more.

PARTS := test/controlplane/parts
kubernetes-version := $(call mod-version,$(PARTS),k8s.io/kubernetes)
# kubernetes-ldflags-of VERSION
kubernetes-ldflags-of = -s -w -X k8s.io/component-base/version.gitVersion=$(1) \
	-X k8s.io/component-base/version.gitMajor=1 \
	-X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(1)))
kubernetes-ldflags := $(call kubernetes-ldflags-of,$(kubernetes-version))

.PHONY: controlplane
controlplane: $(BIN)/etcd $(BIN)/kubectl $(BIN)/kube-apiserver # Build etcd, kube-apiserver and kubectl, on which the tests run.

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
# Parts of the real cluster.
$(eval $(call part,kube-controller-manager,2 minutes,$(kubernetes-ldflags)))
$(eval $(call part,kube-scheduler,30 seconds,$(kubernetes-ldflags)))
$(eval $(call part,kubelet,2 minutes,$(kubernetes-ldflags)))

# go-source MODULE,VERSION is the folder of a source with the sum in go.sum or hack/make/pinned.sum. That sum covers the
# source's go.sum, by which it is built.
go-source = $$(go mod download -modfile=$(if $(filter $(2),$(call mod-version,.,$(1))),go.mod,hack/make/pinned.mod) \
	-json $(1)@$(2) | awk -F'"' '$$2 == "Dir" {print $$4}')

.cache/kubernetes-%.mod: hack/source-mod.sh hack/make/pinned.sum
	hack/source-mod.sh "$(call go-source,k8s.io/kubernetes,$*)" $@
.cache/cilium-%.mod: hack/source-mod.sh hack/make/pinned.sum
	hack/source-mod.sh "$(call go-source,github.com/cilium/cilium,$*)" $@

# The oldest Kubernetes that the chart installs on, and the kubelet from which the scenario kubelet upgrades.
OLDEST_KUBERNETES := v1.32.13
OLD_KUBELET := v1.35.4
oldest-bin := $(BIN)/kubernetes-$(OLDEST_KUBERNETES:v%=%)
old-kubelet := $(BIN)/kubelet-$(OLD_KUBELET:v%=%)/kubelet

# old-part FILE,VERSION,TIME
define old-part
$(1): | .cache/kubernetes-$(2).mod
	@echo "building $$(@F) $(2): once, about $(3) on two cores"
	cd "$$(call go-source,k8s.io/kubernetes,$(2))" && GOWORK=off go build -v -mod=readonly -modfile=$(CURDIR)/.cache/kubernetes-$(2).mod \
		-ldflags '$(call kubernetes-ldflags-of,$(2))' -o $(CURDIR)/$$@ ./cmd/$$(@F) $$(call progress,$$(@F))
	@touch $$@
endef
$(eval $(call old-part,$(oldest-bin)/kube-apiserver,$(OLDEST_KUBERNETES),5 minutes))
$(eval $(call old-part,$(old-kubelet),$(OLD_KUBELET),2 minutes))
# The Kubernetes below the agents of make e2e.
kubernetes-dir := $(if $(filter $(kubernetes-version),$(or $(KUBERNETES),$(kubernetes-version))),$(BIN),$(if $(filter $(OLDEST_KUBERNETES),$(KUBERNETES)),$(oldest-bin),\
	$(error KUBERNETES=$(KUBERNETES): $(OLDEST_KUBERNETES) or $(kubernetes-version))))

# etcd and kubectl are those of the newest.
$(oldest-bin)/etcd $(oldest-bin)/kubectl: | $(oldest-bin)/kube-apiserver
	@ln -sf ../$(@F) $@

cilium-default := $(call mod-version,.,github.com/cilium/cilium)

# Cilium's own allocator, which the stand-in agents are compared with. It needs Cilium's dependencies.
$(BIN)/cilium-ipam: $(wildcard test/truth/testdata/cilium-ipam/*.go test/truth/wire/*.go) .cache/cilium-$(cilium-default).mod
	@echo "building cilium-ipam: once, about 3 minutes on two cores"
	rm -rf .cache/cilium-ipam
	cp -r test/truth/testdata/cilium-ipam .cache
	cp -r test/truth/wire .cache/cilium-ipam
	go mod edit -print -module=github.com/cilium-pool/cilium-pool-operator/test/truth -require=github.com/cilium/cilium@$(cilium-default) .cache/cilium-$(cilium-default).mod >.cache/cilium-ipam/go.mod
	cat go.sum .cache/cilium-$(cilium-default).sum >.cache/cilium-ipam/go.sum
	cd .cache/cilium-ipam && go build -v -o $(CURDIR)/$@ . $(call progress,$(@F))
	@touch $@

CILIUM ?= $(cilium-default)
cilium-source = $(call go-source,github.com/cilium/cilium,$(CILIUM))
cilium-mod := .cache/cilium-$(CILIUM).mod
# With test/cilium/patches applied it is a copy, which PATCHED=1 builds.
cilium-patched := .cache/cilium-$(CILIUM)-patched
cilium-dir := $(BIN)/cilium-$(CILIUM:v%=%)$(if $(PATCHED),-patched)
cilium-ldflags := -s -w -X github.com/cilium/cilium/pkg/version.ciliumVersion=$(CILIUM:v%=%)
RUN ?= all

# Of another version, or a patched one, the agent, its plugin and what it runs beside are enough, but for the other modes.
cilium-programs := cilium-agent cilium-cni cilium-health-responder wireguard $(if $(filter $(cilium-default),$(CILIUM)$(PATCHED)),cilium-dbg cilium-operator,$(if $(findstring modes,$(RUN))$(findstring matrix,$(RUN))$(findstring bgp,$(RUN)),cilium-operator))

.PHONY: cilium
cilium: $(addprefix $(cilium-dir)/,$(cilium-programs) bpf/COPYING chart/Chart.yaml crds/copied) # Build the real Cilium that make e2e runs.

# cilium-part NAME,TIME,FLAGS,PACKAGE
define cilium-part
$(cilium-dir)/$(1): $(if $(PATCHED),$(cilium-patched)/go.mod) | $(cilium-mod)
	@echo "building $(1): once, about $(2) on two cores"
	cd "$(if $(PATCHED),$(cilium-patched),$$(cilium-source))" && go build -v -modfile=$(CURDIR)/$(cilium-mod) $(3) -ldflags '$(cilium-ldflags)' -o $(CURDIR)/$$@ $(4) $(call progress,$(1))
	@touch $$@
endef
$(eval $(call cilium-part,cilium-agent,4 minutes,,./daemon))
$(eval $(call cilium-part,cilium-dbg,30 seconds,,./cilium-dbg))
$(eval $(call cilium-part,cilium-cni,15 seconds,,./plugins/cilium-cni))
# It has no multi-pool mode without the tag.
$(eval $(call cilium-part,cilium-operator,1 minute,-tags ipam_provider_operator,./operator))

# What the agent's image has beside. Scenarios with health checking need the last, the real cluster all.
$(eval $(call cilium-part,cilium-mount,10 seconds,,./tools/mount))
$(eval $(call cilium-part,cilium-sysctlfix,10 seconds,,./tools/sysctlfix))
$(eval $(call cilium-part,cilium-health-responder,10 seconds,,./cilium-health/responder))
# WireGuard as a program, where the kernel has none. Its module is one that Cilium requires.
$(eval $(call cilium-part,wireguard,10 seconds,,golang.zx2c4.com/wireguard))

$(cilium-patched)/go.mod: hack/patch-cilium.sh $(wildcard test/cilium/patches/*.patch)
	hack/patch-cilium.sh "$(cilium-source)" $(@D)

# The datapath's sources, which the agent compiles for each node, the chart, which makes the
# agent's configuration, and the CRDs.
$(cilium-dir)/bpf/COPYING: cilium-folder := bpf
$(cilium-dir)/chart/Chart.yaml: cilium-folder := install/kubernetes/cilium
$(cilium-dir)/crds/copied: cilium-folder := pkg/k8s/apis/cilium.io/client/crds
$(cilium-dir)/bpf/COPYING $(cilium-dir)/chart/Chart.yaml $(cilium-dir)/crds/copied:
	rm -rf $(@D)
	mkdir -p $(cilium-dir)
	cp -r "$(cilium-source)/$(cilium-folder)" $(@D)
	chmod -R u+w $(@D)
	touch $@

# The router that scenarios with BGP peer agents with.
$(BIN)/bgp-router: $(wildcard test/bgp/*.go) test/bgp/go.mod test/bgp/go.sum
	@echo "building $(@F): once, about 1 minute on two cores"
	cd test/bgp && go test . && go build -o $(CURDIR)/$@ .

CLUSTER := test/cluster
CLUSTER_IMAGES := .cache/cluster/images
comma := ,
space := $() $()
# NODES of the demo is 20, RUN of e2e is all; here they are 3 and ci unless given.
CLUSTER_NODES := $(call given,NODES,3)
CLUSTER_RUN := $(call given,RUN,ci)
# cluster-runs SCENARIO is empty unless RUN has that scenario.
cluster-runs = $(filter all $1,$(subst $(comma),$(space),$(CLUSTER_RUN)))
containerd-version := $(call mod-version,$(CLUSTER)/parts/containerd,github.com/containerd/containerd/v2)

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
		$(addprefix $(CLUSTER_IMAGES)/,cilium-$(CILIUM).tar pause.tar probe.tar) $(cilium-dir)/chart/Chart.yaml $(helm) $(helm3) ## Build what the real cluster runs: 25 minutes the first time.

# The scenario cilium upgrades from it.
OLD_CILIUM := v1.19.5
old-cilium-files := $(CLUSTER_IMAGES)/cilium-$(OLD_CILIUM).tar $(BIN)/cilium-$(OLD_CILIUM:v%=%)/chart/Chart.yaml
.PHONY: cluster-old-cilium
cluster-old-cilium: cluster-packages
	@$(MAKE) --no-print-directory CILIUM=$(OLD_CILIUM) $(old-cilium-files)

# Earlier operators, by commit, as there is no release yet. The scenario operator upgrades from the first, of another API;
# the scenarios versions of test/cluster and test/chaos mix the second with this one, until there is a tag.
OLD_OPERATOR ?= e3bd41a906a15b0e1eb905554723792106e3befa
OLDER_OPERATOR ?= 7f0c1e2e3ac73d1ef216a11f95d6f593d2bc53ae
old-operator := .cache/operator-$(OLD_OPERATOR)
older-operator := .cache/operator-$(OLDER_OPERATOR)

.cache/operator-%/source/Makefile:
	hack/old-source.sh $* $(@D)

.cache/operator-%/cilium-pool-operator: | .cache/operator-%/source/Makefile
	@echo "building the operator of commit $*: once, about 2 minutes on two cores"
	cd $(@D)/source && go build -v -o $(CURDIR)/$@ ./cmd/cilium-pool-operator $(call progress,cilium-pool-operator)

.cache/operator-%/image.tar: | $(helm) .cache/operator-%/source/Makefile
	@echo "building the image of commit $*: once, about 2 minutes on two cores"
	@$(MAKE) --no-print-directory -C $(@D)/source image VERSION=v0.0.1 COMMIT=$*
	$(helm) package $(@D)/source/$(CHART) --version 0.0.1 --app-version v0.0.1 --destination $(@D)
	mv $(@D)/source/$(IMAGE_DIR)/cilium-pool-operator.tar $@

.PHONY: cluster-packages
cluster-packages:
	hack/cluster-packages.sh

cluster-operator := $(IMAGE_DIR)/cilium-pool-operator.tar
.PHONY: cluster-program
cluster-program: cluster-parts $(if $(call cluster-runs,cilium),cluster-old-cilium) $(if $(call cluster-runs,operator),$(old-operator)/image.tar) \
		$(if $(call cluster-runs,versions),$(older-operator)/image.tar) \
		$(if $(call cluster-runs,kubelet),$(old-kubelet))
	@echo "building the operator's image: up to 2 minutes the first time"
	@$(MAKE) --no-print-directory image
	@go build -o $(BIN)/ ./$(CLUSTER) ./cmd/kubectl-cilium_pool

cluster-flags = -cilium $(cilium-dir)/chart -old-cilium $(BIN)/cilium-$(OLD_CILIUM:v%=%)/chart \
	-old-image $(CURDIR)/$(CLUSTER_IMAGES)/cilium-$(OLD_CILIUM).tar -old-operator $(old-operator) -older-operator $(older-operator) -old-kubelet $(old-kubelet) -helm $(helm) -helm3 $(helm3) -nodes $(CLUSTER_NODES) -operator $(cluster-operator) \
	-images $(subst $(space),$(comma),$(addprefix $(CURDIR)/$(CLUSTER_IMAGES)/,cilium-$(CILIUM).tar pause.tar probe.tar))
