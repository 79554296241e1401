package v1alpha1

// Names that tie objects to the operator.
const (
	// Finalizer keeps a deleted pool until its blocks are gone, and a deleted
	// block until its addresses are out of use.
	Finalizer = "cilium-pool.io/in-use"
	// OptOutLabel on a Node, set to "true", keeps the operator away from it.
	OptOutLabel = "cilium-pool.io/ignore"
	// PausedAnnotation on a Node, set to "true", stops all change on it.
	PausedAnnotation = "cilium-pool.io/paused"
	// TrustedLabelsAnnotation on a PodIPPool, set to "true", says that its node selector may use
	// labels that kubelets may set.
	TrustedLabelsAnnotation = "cilium-pool.io/trusted-labels"
	// AllowDeleteAnnotation on a PodIPBlock, a PodIPPool or their CRDs, set to "true", makes the chart's
	// policies admit its deletion while nodes use it. It stays until it is removed, or the object is gone.
	AllowDeleteAnnotation = "cilium-pool.io/allow-delete"
	// OwnRangesAnnotation on a PodIPPool, set to "true", says that its ranges are assigned
	// to its users, though they are not private or shared address space.
	OwnRangesAnnotation = "cilium-pool.io/own-ranges"
	// AdoptedLabel on a block names the IPAM mode that assigned it to its node before it was ours,
	// until the move is finished. While the node's agent has not reported, the operator only
	// publishes the block there.
	AdoptedLabel = "cilium-pool.io/adopted-from"
	// ModeLabel on the operator's Lease names the mode that the operator runs in.
	ModeLabel = "cilium-pool.io/mode"
	// SettingsAnnotation on the operator's Lease has the version and the settings of
	// the operator that leads or led last, as JSON.
	SettingsAnnotation = "cilium-pool.io/settings"
	// RestoredAnnotation on the operator's Lease says that etcd was restored from a snapshot, or, with the value
	// RestoredPerhaps, that it may have been: the operator changes nothing until agents have reported which
	// addresses they use.
	RestoredAnnotation = "cilium-pool.io/restored"
	RestoredPerhaps    = "perhaps"
	// IPv4Resource and IPv6Resource are extended resources: a Node offers so many
	// addresses of the family, and a pod requests one.
	IPv4Resource = "cilium-pool.io/ipv4"
	IPv6Resource = "cilium-pool.io/ipv6"
	// NoRequestLabel on a pod, set to "true", keeps the chart's policies from adding a
	// request for an address.
	NoRequestLabel = "cilium-pool.io/no-address-request"
	// ReturningAnnotation on a Node names the IPAM mode that the node is on its
	// way back to.
	ReturningAnnotation = "cilium-pool.io/returning"
)
