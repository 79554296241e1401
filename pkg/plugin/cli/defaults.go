package cli

// Where the chart puts the operator's Lease.
const (
	LeaseNamespace = "kube-system"
	LeaseName      = "cilium-pool-operator"
)
