package ciliumnode

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
)

// Mode is Cilium's IPAM mode (pkg/ipam/option/option.go, v1.20.1). It says how
// the blocks of a node are told to its agent, and how they come back. Nothing
// outside this package asks which one it is. The zero value is CRD.
type Mode string

// The modes there are.
const (
	// CRD: the agent is told addresses, in spec.ipam.pool, and gives each back
	// by a handshake.
	CRD Mode = "crd"
	// MultiPool: the agent is told whole blocks, in spec.ipam.pools.allocated,
	// and takes those it no longer needs off that list by itself.
	MultiPool Mode = "multi-pool"
)

// Modes are all modes.
func Modes() []Mode { return []Mode{CRD, MultiPool} }

// ParseMode reads the name of a mode, as Cilium's values have it in ipam.mode.
// The error says what it may be.
func ParseMode(name string) (Mode, error) {
	if m := Mode(name); slices.Contains(Modes(), m) {
		return m, nil
	}
	names := make([]string, 0, len(Modes()))
	for _, m := range Modes() {
		names = append(names, string(m))
	}
	return "", fmt.Errorf("must be %s", strings.Join(names, " or "))
}

// WholeBlocks reports whether an agent gives out every address of a block, but
// for its first and last, so that none of them can be kept back.
func (m Mode) WholeBlocks() bool { return m == MultiPool }

// View reads a CiliumNode.
func (m Mode) View(cn *ciliumv2.CiliumNode) *View { return m.way().view(cn) }

// Keep reads a CiliumNode, which must not be changed afterwards.
func (m Mode) Keep(cn *ciliumv2.CiliumNode) *Kept {
	k := &Kept{
		View: m.View(cn), labels: cn.Labels, annotations: cn.Annotations, owners: cn.OwnerReferences, spec: cn.Spec,
	}
	if k.saysAll(cn.Spec.IPAM.Pool) {
		k.spec.IPAM.Pool = nil
	}
	return k
}

// way is what differs between the modes.
type way interface {
	// view reads what the agent was told, and what it tells.
	view(*ciliumv2.CiliumNode) *View
	// patch is the JSON merge patch of the spec that carries out a change on
	// exactly the version seen, or nil where all is as it should be.
	patch(*View, Change) ([]byte, error)
	// without takes what lies in blocks out of a CiliumNode to be put back, and
	// what its agent has yet to say of the new object.
	without(*ciliumv2.CiliumNode, []netip.Prefix)
}

func (m Mode) way() way {
	if m == MultiPool {
		return multiPool{}
	}
	return addresses{}
}

// addresses is crd mode.
type addresses struct{}

func (addresses) view(cn *ciliumv2.CiliumNode) *View { return NewView(cn) }

func (addresses) patch(v *View, c Change) ([]byte, error) { return c.patch(v) }

func (addresses) without(cn *ciliumv2.CiliumNode, blocks []netip.Prefix) { withoutBlocks(cn, blocks) }
