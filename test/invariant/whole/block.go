package whole

import (
	"net/netip"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// Block is the read part of a PodIPBlock.
type Block struct {
	CIDR    netip.Prefix
	Node    string
	Cooling bool
}

// BlockOf reads a PodIPBlock; false: it is none.
func BlockOf(o client.Object) (Block, bool) {
	b, ok := o.(*v1alpha1.PodIPBlock)
	if !ok {
		return Block{}, false
	}
	cidr, err := netip.ParsePrefix(b.Spec.CIDR)
	return Block{cidr, b.Spec.NodeName, meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.BlockCoolingDown)}, err == nil
}

// block is an existing one. Where it cools down, from is the version since when.
type block struct {
	Block
	from uint64
}

func versionOf(o client.Object) uint64 {
	version, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64) // the API server's own
	return version
}
