package audit

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// Check returns the findings of a snapshot, sorted by severity. In a changing
// cluster some are transient: see Persisting.
func Check(s *Snapshot, set Settings) []Finding {
	x, found := newIndex(s, set), &findings{seen: map[string]bool{}}
	for i := range s.Pools {
		(&poolCheck{x, found, &s.Pools[i], x.cluster.Pools.Get(s.Pools[i].Name)}).check()
	}
	for i := range s.Pins {
		pin := &s.Pins[i]
		ready := meta.FindStatusCondition(pin.Status.Conditions, v1alpha1.PinReady)
		waits := ready == nil || ready.Reason == v1alpha1.PinWaitsForNode || ready.Reason == v1alpha1.PinNotClaimed || ready.Reason == v1alpha1.PinDraining
		if !waits && ready.Status == metav1.ConditionFalse {
			found.add(PinNotReady, Finding{Object: Object{Kind: "PodIPPin", Name: pin.Name}}, "%s: %s", ready.Reason, ready.Message)
		}
	}
	for _, key := range s.RoutesLeft {
		found.add(FRRConfigurationLeft, Finding{Object: Object{Kind: "FRRConfiguration", Namespace: key.Namespace, Name: key.Name}}, "the operator wrote it, and maintains it no more")
	}
	checkCilium(x, found)
	checkBlocks(x, found)
	owners := map[netip.Addr]Object{}
	for _, n := range x.nodes {
		(&nodeCheck{x, found, n}).check(owners)
	}
	acrossNodes(x, found)
	inOrder(found.all)
	return found.all
}

// findings collects findings, each once.
type findings struct {
	all  []Finding
	seen map[string]bool
}

// add adds a finding: f with a reason and the fault.
func (fs *findings) add(r Reason, f Finding, says string, args ...any) {
	f.Reason, f.Says = r, fmt.Sprintf(says, args...)
	if key := f.key(); !fs.seen[key] {
		fs.seen[key] = true
		fs.all = append(fs.all, f)
	}
}

// single returns an address as a prefix.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func nodeObject(name string) Object { return Object{Kind: "Node", Name: name} }

func blockObject(name string) Object { return Object{Kind: "PodIPBlock", Name: name} }

func poolObject(name string) Object { return Object{Kind: "PodIPPool", Name: name} }

// aboutBlock begins a finding about a block.
func aboutBlock(b *crd.Block, others ...Object) Finding {
	return Finding{Object: blockObject(b.Name), Others: others, Subject: b.CIDR}
}
