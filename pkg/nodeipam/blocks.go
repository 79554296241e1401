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

	"go4.org/netipx"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Blocks are the blocks that a node's pods get addresses of.
type Blocks struct {
	// Version is the resourceVersion of the CiliumNode that they are from.
	Version string `json:"version"`
	// Families are the families that each pod gets an address of.
	Families [2]bool `json:"families"`
	// Blocks are sorted by CIDR. None overlaps another.
	Blocks []Block `json:"blocks"`
}

// Block is one of them.
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
	// Withheld are ranges that no pod gets an address of.
	Withheld []netip.Prefix `json:"withheld,omitempty"`
}

// Blocks returns the blocks that SetBlocks wrote, or ErrNotReady.
func (s *Store) Blocks() (*Blocks, error) {
	content, err := os.ReadFile(s.path("blocks.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotReady
	}
	if err != nil {
		return nil, fmt.Errorf("reading the node's blocks: %w", err)
	}
	blocks := &Blocks{}
	if err := json.Unmarshal(content, blocks); err != nil {
		return nil, fmt.Errorf("reading the node's blocks from %s: %w", s.path("blocks.json"), err)
	}
	return blocks, nil
}

// SetBlocks replaces the blocks. Once it returns, no address of a block that is closed, or missing, is assigned.
func (s *Store) SetBlocks(ctx context.Context, blocks Blocks) error {
	content, err := json.Marshal(blocks)
	if err != nil {
		return err
	}
	draft, err := s.writeSynced(content)
	if err != nil {
		return err
	}
	defer s.removeDraft(draft)
	return s.locked(ctx, func() error {
		if err := os.Rename(draft, s.path("blocks.json")); err != nil {
			return fmt.Errorf("writing the node's blocks: %w", err)
		}
		return syncDir(s.dir)
	})
}

// firstFree returns a free address of the first block that has one, and the block: so later blocks become empty. Within
// a block the addresses take turns, as others may still know the last pod of an address. The zero Addr: there is none.
func (bs *Blocks) firstFree(pool string, family ipalloc.Family, taken map[netip.Addr]Owner, last map[netip.Prefix]netip.Addr) (netip.Prefix, netip.Addr) {
	for i := range bs.Blocks {
		b := &bs.Blocks[i]
		if b.Pool != pool || b.Closed || ipalloc.FamilyOf(b.CIDR.Addr()) != family {
			continue
		}
		if addr := b.firstFree(taken, last[b.CIDR]); addr.IsValid() {
			return b.CIDR, addr
		}
	}
	return netip.Prefix{}, netip.Addr{}
}

// firstFree returns the first free address after last, or before it; the zero Addr: there is none.
func (b *Block) firstFree(taken map[netip.Addr]Owner, last netip.Addr) netip.Addr {
	ranges := b.ranges()
	for _, begin := range []netip.Addr{last.Next(), b.CIDR.Addr()} {
		for _, r := range ranges {
			addr := r.From()
			if addr.Less(begin) {
				addr = begin
			}
			for ; r.Contains(addr); addr = addr.Next() {
				if _, isTaken := taken[addr]; !isTaken {
					return addr
				}
			}
		}
	}
	return netip.Addr{}
}

// ranges returns the addresses that pods may get, sorted.
func (b *Block) ranges() []netipx.IPRange {
	var usable netipx.IPSetBuilder
	usable.AddPrefix(b.CIDR)
	if b.CIDR.Addr().BitLen()-b.CIDR.Bits() > 1 {
		if !b.AllowFirst {
			usable.Remove(b.CIDR.Masked().Addr())
		}
		if !b.AllowLast {
			usable.Remove(netipx.PrefixLastIP(b.CIDR))
		}
	}
	for _, withheld := range b.Withheld {
		usable.RemovePrefix(withheld)
	}
	set, err := usable.IPSet()
	if err != nil {
		return nil // an invalid range withholds the block
	}
	return set.Ranges()
}

// readLast returns the address that was assigned last in each of the blocks; of some it may be unknown.
func (s *Store) readLast(blocks *Blocks) map[netip.Prefix]netip.Addr {
	last := map[netip.Prefix]netip.Addr{}
	if content, err := os.ReadFile(s.path("last.json")); err == nil {
		_ = json.Unmarshal(content, &last) // a crash may have cut it off
	}
	maps.DeleteFunc(last, func(cidr netip.Prefix, _ netip.Addr) bool {
		return !slices.ContainsFunc(blocks.Blocks, func(b Block) bool { return b.CIDR == cidr })
	})
	return last
}

// writeLast is not synced, as an address may be assigned again sooner.
func (s *Store) writeLast(last map[netip.Prefix]netip.Addr) {
	if content, err := json.Marshal(last); err == nil {
		_ = os.WriteFile(s.path("last.json"), content, 0o600)
	}
}
