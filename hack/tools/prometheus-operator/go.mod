module github.com/cilium-pool/cilium-pool-operator/hack/tools/prometheus-operator

go 1.26.0

// Not built: its folder example/prometheus-operator-crd has the CRDs that the
// chart's monitors and alerts are tested against.
require github.com/prometheus-operator/prometheus-operator v0.94.1
