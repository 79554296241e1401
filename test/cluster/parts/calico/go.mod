// Calico's CRDs, which the scenario calico applies. Nothing of Calico is built.
module github.com/cilium-pool/cilium-pool-operator/test/cluster/parts/calico

go 1.25.0

require github.com/projectcalico/calico v1.11.0-cni-plugin.0.20250813170300-a0db560f0520
