package ciliumnode

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"weak"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Stored is the in-memory form of a CiliumNode: its View, and the rest that Recreate restores. Most
// of it is packed, because a large cluster has many and reads few at a time: the maps of a View
// take eight times the memory, and those of an object twice that.
type Stored struct {
	Summary

	pool, used packed
	// read is the View that it was made from, while that is still in memory: the reconcile that
	// follows an event needs it.
	read weak.Pointer[View]
	// rest is a restOf as JSON; empty: no more is known.
	rest []byte
}

// restOf is the part that Recreate restores in addition to the View. Its spec has no pool if
// View.Pool contains all of it.
type restOf struct {
	Labels      map[string]string       `json:"labels,omitempty"`
	Annotations map[string]string       `json:"annotations,omitempty"`
	Owners      []metav1.OwnerReference `json:"owners,omitempty"`
	Spec        ciliumv2.NodeSpec       `json:"spec"`
}

// ToStored reads a CiliumNode of crd mode, which must not be changed afterwards.
func ToStored(cn *ciliumv2.CiliumNode) *Stored { return CRD.ToStored(cn) }

// Stored returns the in-memory form of a CiliumNode known by its View only.
func (v *View) Stored() *Stored {
	return &Stored{Summary: v.Summary, pool: pack(v.Pool), used: pack(v.Used), read: weak.Make(v)}
}

// View returns the View.
func (k *Stored) View() *View {
	if v := k.read.Value(); v != nil {
		return v
	}
	return &View{Summary: k.Summary, Pool: k.pool.unpack(), Used: k.used.unpack()}
}

// Addresses returns the addresses that the CiliumNode names: in its pool, in use, and the
// agent's own, including stale ones. Some occur twice.
func (k *Stored) Addresses() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, p := range []packed{k.pool, k.used} {
			for addr := range p.all() {
				if !yield(addr) {
					return
				}
			}
		}
		for _, addrs := range [][]netip.Addr{k.NonCanonical, k.Own, k.Stale} {
			for _, addr := range addrs {
				if !yield(addr) {
					return
				}
			}
		}
	}
}

// ReportsUse reports whether an agent in crd mode reports addresses in use, so that pods get none
// of cidr outside its pool. A report is left from an earlier run if the agent has an address of its
// own in cidr that neither the report nor the pool names: it now allocates from cidr.
func (k *Stored) ReportsUse(cidr netip.Prefix) bool {
	own := slices.DeleteFunc(slices.Clone(k.Own), func(addr netip.Addr) bool { return !cidr.Contains(addr) })
	reports := false
	for range k.used.all() {
		reports = k.BlockDemand == nil
		break
	}
	for i := 0; reports && len(own) > 0 && i < 2; i++ {
		for addr := range []packed{k.pool, k.used}[i].all() {
			own = slices.DeleteFunc(own, func(a netip.Addr) bool { return a == addr })
		}
	}
	return reports && len(own) == 0
}

// At returns the CiliumNode with another resourceVersion.
func (k *Stored) At(version string) *Stored {
	at := *k
	at.ResourceVersion, at.read = version, weak.Pointer[View]{}
	return &at
}

// saysAll reports whether the View contains everything in a pool.
func (v *View) saysAll(pool ipamtypes.AllocationMap) bool {
	for _, ip := range pool {
		if ip.Resource != "" {
			return false
		}
	}
	return len(v.Pool) == len(pool)
}

// OwnedBy reports whether a Node owns the CiliumNode.
func (k *Stored) OwnedBy(node *corev1.Node) bool {
	var rest restOf
	err := json.Unmarshal(k.rest, &rest)
	return err == nil && slices.ContainsFunc(rest.Owners, func(ref metav1.OwnerReference) bool {
		return ref.Kind == "Node" && ref.UID == node.UID
	})
}

// rebuild returns the object that replaces a deleted one, owned by node.
func (k *Stored) rebuild(node *corev1.Node) (*ciliumv2.CiliumNode, error) {
	var rest restOf
	if err := json.Unmarshal(k.rest, &rest); err != nil {
		return nil, fmt.Errorf("what is known of CiliumNode %s: %w", k.Name, err)
	}
	cn := &ciliumv2.CiliumNode{
		ObjectMeta: metav1.ObjectMeta{
			Name:            k.Name,
			Labels:          rest.Labels,
			Annotations:     rest.Annotations,
			OwnerReferences: []metav1.OwnerReference{ownerOf(node)},
		},
		Spec: rest.Spec,
	}
	if cn.Spec.IPAM.Pool == nil {
		cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{}
		for addr, owner := range k.pool.all() {
			cn.Spec.IPAM.Pool[addr.String()] = ipamtypes.AllocationIP{Owner: owner}
		}
	}
	return cn, nil
}
