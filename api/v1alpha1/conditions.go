package v1alpha1

// Conditions of a PodIPPool, which has all of them from the operator's first visit on, and of a
// PodIPBlock.
const (
	// PoolReady is True while the spec is in force and nodes are served: by the pool, or by the
	// next pool that selects them.
	PoolReady = "Ready"
	// PoolOverlapping is True while an older pool assigns a part of the pool.
	PoolOverlapping = "Overlapping"
	// PoolReservedHeld is True while nodes hold blocks that overlap a reserved
	// range of the pool and would not be assigned again.
	PoolReservedHeld = "ReservedBlocksHeld"
	// PoolCoversCluster is True while the pool covers addresses of nodes or Services;
	// its message says whether pods get them.
	PoolCoversCluster = "CoversClusterAddresses"
	// PoolMasqueraded is True while agents masquerade connections to pods of a range of
	// the pool.
	PoolMasqueraded = "Masqueraded"
	// PoolExhausted is True while the pool has no free block.
	PoolExhausted = "Exhausted"
	// PoolWindow is True while a maintenance window of the pool is open, or blocks may leave at any
	// time.
	PoolWindow = "MaintenanceWindowOpen"
	// PoolCiliumPool is False while agents, in multi-pool mode, find no CiliumPodIPPool that fits
	// the pool.
	PoolCiliumPool = "CiliumPodIPPoolReady"
	// PoolFamiliesServed is False while agents of nodes that hold blocks of the pool do
	// not run a family that it has.
	PoolFamiliesServed = "FamiliesServed"
	// BlockPublished is True while the CiliumNode of a block's node has the block, and absent
	// before that was observed.
	BlockPublished = "Published"
	// BlockDraining is True while a block is being emptied, else False, and absent until a first
	// write. Its reason says why the block is in its phase, or must leave it.
	BlockDraining = "Draining"
	// BlockCoolingDown is True while a returned block cools down.
	BlockCoolingDown = "CoolingDown"
	// BlockConflict is True, which is a fault, while a block overlaps another one, else absent.
	BlockConflict = "Conflict"
)

// NodeAddressShortage is the type of the condition of Nodes that lack addresses for their pods.
const NodeAddressShortage = "cilium-pool.io/PodAddressShortage"

// NodePoolsExhausted is the reason of NodeAddressShortage where no pool that serves the
// Node has a free block.
const NodePoolsExhausted = "PoolsExhausted"
