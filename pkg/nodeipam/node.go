package nodeipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Node describes a node to the plugin.
type Node struct {
	// Version is the resourceVersion of the CiliumNode that the blocks are from.
	Version string `json:"version"`
	// Boot identifies the run of the machine that they are known in. Another run waits until the node agent has read the
	// CiliumNode again: the Node may have been gone meanwhile, and its blocks may be another node's.
	Boot string `json:"boot"`
	// Boots are the latest runs of the machine, this one last.
	Boots []string `json:"boots"`
	// Families are the families that each pod gets an address of.
	Families [2]bool `json:"families"`
	// Blocks are sorted by CIDR. None overlaps another.
	Blocks []Block `json:"blocks"`
	// OnlyDefault: the default Cilium pool is the only one. Then Pods has only the pods that ask for another.
	OnlyDefault bool `json:"onlyDefault,omitempty"`
	// Pods are the node's pods, by UID.
	Pods map[string]Pod `json:"pods,omitempty"`
}

// Pod is a pod that is bound to the node.
type Pod struct {
	// Pools are the Cilium pools, by family, that it gets addresses of; "": the default one.
	Pools [2]string `json:"pools"`
	// Refused says why it gets no address; "": it does.
	Refused string `json:"refused,omitempty"`
}

// Block is a block whose addresses the node's pods get.
type Block struct {
	CIDR netip.Prefix `json:"cidr"`
	// Pool is the Cilium pool of the pods that it is for; "": the default one.
	Pool string `json:"pool,omitempty"`
	// Closed: no further pod gets an address of it.
	Closed bool `json:"closed,omitempty"`
	// AllowFirst and AllowLast: pods may get the first and the last address, too. They may in any case if it has no
	// more than two.
	AllowFirst bool `json:"allowFirst,omitempty"`
	AllowLast  bool `json:"allowLast,omitempty"`
}

// Node returns what SetNode wrote, or ErrNotReady.
func (s *Store) Node() (*Node, error) {
	content, err := os.ReadFile(s.path("node.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotReady
	}
	if err != nil {
		return nil, fmt.Errorf("reading the node's blocks: %w", err)
	}
	node := &Node{}
	if err := json.Unmarshal(content, node); err != nil {
		return nil, fmt.Errorf("%w: reading %s: %w", ErrNotReady, s.path("node.json"), err)
	}
	return node, nil
}

// IsThere reports whether nobody has removed the store's directory. This process may have a mount of a removed one.
func (s *Store) IsThere() bool {
	_, err := os.Stat(s.path("addresses"))
	return err == nil
}

// Ready returns what SetNode wrote in this run of the machine, or ErrNotReady.
func (s *Store) Ready() (*Node, error) {
	node, err := s.Node()
	if err == nil && node.Boot != s.Boot {
		return nil, ErrNotReady
	}
	return node, err
}

// SetNode replaces the node's description. Once it returns, pods get no address of closed and missing blocks.
func (s *Store) SetNode(ctx context.Context, node Node) error {
	node.Boot = s.Boot
	content, err := json.Marshal(node)
	if err != nil {
		return err
	}
	draft, err := s.writeSynced(content)
	if err != nil {
		return err
	}
	defer s.removeDraft(draft)
	return s.locked(ctx, func() error {
		if err := os.Rename(draft, s.path("node.json")); err != nil {
			return fmt.Errorf("writing the node's blocks: %w", err)
		}
		return syncDir(s.dir)
	})
}

// Forget removes what SetNode wrote: until it is called again, pods get no address. Addresses in use stay.
func (s *Store) Forget(ctx context.Context) error {
	return s.locked(ctx, func() error {
		if err := os.Remove(s.path("node.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the node's blocks: %w", err)
		}
		return syncDir(s.dir)
	})
}

// bootID returns the kernel's name for the run of the machine.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// pod returns an owner's pod. The error is ErrNotReady or a RefusedError.
func (n *Node) pod(owner Owner) (Pod, error) {
	pod, known := n.Pods[owner.UID]
	switch {
	case n.Families == [2]bool{}, !known && !n.OnlyDefault:
		return pod, ErrNotReady
	case pod.Refused != "":
		return pod, &RefusedError{pod.Refused}
	default:
		return pod, nil
	}
}

// choose returns a free address of each family, of the first block that has one, and records it as the block's last: so
// later blocks become empty. Within a block the addresses take turns, as others may still know the last pod of an address.
// The error is a NoAddressError.
func (n *Node) choose(pod Pod, taken map[netip.Addr]Owner, last map[netip.Prefix]netip.Addr) ([]netip.Addr, error) {
	var chosen []netip.Addr
	for _, family := range ipalloc.Families() {
		if !n.Families[family] {
			continue
		}
		addr := netip.Addr{}
		for i := range n.Blocks {
			b := &n.Blocks[i]
			if b.Pool != pod.Pools[family] || b.Closed || ipalloc.FamilyOf(b.CIDR.Addr()) != family {
				continue
			}
			if addr = b.firstFree(taken, last[b.CIDR]); addr.IsValid() {
				if last != nil {
					last[b.CIDR] = addr
				}
				break
			}
		}
		if !addr.IsValid() {
			return nil, &NoAddressError{pod.Pools[family], family}
		}
		chosen = append(chosen, addr)
	}
	return chosen, nil
}

// firstFree returns the first free address after last, or before it; the zero Addr: there is none.
func (b *Block) firstFree(taken map[netip.Addr]Owner, last netip.Addr) netip.Addr {
	usable := b.usable()
	for _, begin := range []netip.Addr{last.Next(), usable.From()} {
		addr := begin
		if addr.Less(usable.From()) {
			addr = usable.From()
		}
		for ; usable.Contains(addr); addr = addr.Next() {
			if _, isTaken := taken[addr]; !isTaken {
				return addr
			}
		}
	}
	return netip.Addr{}
}

// usable returns the addresses that pods may get.
func (b *Block) usable() netipx.IPRange {
	first := b.CIDR.Masked().Addr()
	end := netipx.PrefixLastIP(b.CIDR)
	if b.CIDR.Addr().BitLen()-b.CIDR.Bits() > 1 {
		if !b.AllowFirst {
			first = first.Next()
		}
		if !b.AllowLast {
			end = end.Prev()
		}
	}
	return netipx.IPRangeFrom(first, end)
}

// readLast returns the address that was assigned last in each of the blocks; of some it may be unknown.
func (s *Store) readLast(node *Node) map[netip.Prefix]netip.Addr {
	last := map[netip.Prefix]netip.Addr{}
	if content, err := os.ReadFile(s.path("last.json")); err == nil {
		_ = json.Unmarshal(content, &last) // a crash may have cut it off
	}
	maps.DeleteFunc(last, func(cidr netip.Prefix, _ netip.Addr) bool {
		return !slices.ContainsFunc(node.Blocks, func(b Block) bool { return b.CIDR == cidr })
	})
	return last
}

// writeLast is not synced, as an address may be assigned again sooner.
func (s *Store) writeLast(last map[netip.Prefix]netip.Addr) {
	if content, err := json.Marshal(last); err == nil {
		_ = os.WriteFile(s.path("last.json"), content, 0o600)
	}
}
