package plugin

// Where the chart puts the operator's Lease.
const (
	leaseNamespace = "kube-system"
	leaseName      = "cilium-pool-operator"
)
