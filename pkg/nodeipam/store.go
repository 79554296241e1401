// Package nodeipam assigns the addresses of a node's blocks to pods, on the node's disk.
//
// The CNI plugin assigns and releases addresses; the node agent says which blocks they come from. Both work on one
// directory under one lock, so each goes on while the other is down:
//
//	lock          taken for each change
//	node.json     the node's blocks and pods, by the node agent
//	last.json     the address assigned last in each block: only a hint
//	addresses/A   who has address A
//
// An address is taken for as long as its file exists. A file is written and synced under another name and then linked
// to the address, so it is whole at every instant, and a link to a taken address fails. The model is host-local
// (github.com/containernetworking/plugins v1.9.0, plugins/ipam/host-local/backend/disk).
package nodeipam

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// DefaultDir is where a node's store is.
const DefaultDir = "/var/lib/cni/cilium-pool"

// Attachment identifies a pod's sandbox and an interface in it, as CNI does.
type Attachment struct {
	Container string `json:"container"`
	Interface string `json:"interface"`
}

// Owner is who has an address.
type Owner struct {
	Attachment
	// Pod is namespace/name; "": unknown.
	Pod string `json:"pod,omitempty"`
	UID string `json:"uid,omitempty"`
	// Netns is the path of the sandbox's network namespace. It is gone once the sandbox is.
	Netns string `json:"netns,omitempty"`
}

// Store is the store of one node. Any number of processes may use one directory.
type Store struct {
	// Boot identifies the run of the machine. Open sets it.
	Boot string

	dir string
	// agentLock is open while LockAgent's lock is held.
	agentLock *os.File
}

// Open returns the store in a directory, and creates it.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir, Boot: bootID()}
	if err := os.MkdirAll(s.path("addresses"), 0o700); err != nil {
		return nil, fmt.Errorf("creating the store of addresses: %w", err)
	}
	return s, nil
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Store) addressPath(a netip.Addr) string {
	return filepath.Join(s.dir, "addresses", a.String())
}

// ErrNotReady says that no node agent has written the node's blocks, or seen a pod, yet.
var ErrNotReady = errors.New("the node agent of cilium-pool-operator has not seen this node, or this pod, yet")

// NoAddressError says that no address of a Cilium pool is free on the node.
type NoAddressError struct {
	Pool   string
	Family ipalloc.Family
}

func (e *NoAddressError) Error() string {
	return fmt.Sprintf("no free %s address of Cilium pool %s on this node", e.Family, cmp.Or(e.Pool, "default"))
}

// RefusedError says that a pod gets no address, and why.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return e.Why }

// Assign returns an address of the owner's Cilium pool for each family of the node, sorted by family. An attachment that
// has some already gets these again. The addresses are on disk when it returns. The error is ErrNotReady, a
// NoAddressError, a RefusedError, or of the file system; then nothing is assigned.
func (s *Store) Assign(ctx context.Context, owner Owner) ([]netip.Addr, error) {
	if err := s.checkFree(owner); err != nil {
		return nil, err // many may wait for an address, and would load disk and lock
	}
	draft, err := s.writeDraft(owner) // it is synced before the lock, and the links after it: a sync takes milliseconds
	if err != nil {
		return nil, err
	}
	defer s.removeDraft(draft)
	var found []netip.Addr
	err = s.locked(ctx, func() error {
		var err error
		found, err = s.assignLocked(owner, draft)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := s.syncAddresses(); err != nil {
		return nil, errors.Join(err, s.Release(ctx, owner.Attachment))
	}
	return found, nil
}

// checkFree returns the error of Assign if no address is free. It looks at the names of files alone.
func (s *Store) checkFree(owner Owner) error {
	node, err := s.Ready()
	if err != nil {
		return err
	}
	pod, err := node.pod(owner)
	if err != nil {
		return err
	}
	files, err := s.addresses()
	if err != nil {
		return err
	}
	taken := map[netip.Addr]Owner{}
	for _, addr := range files {
		taken[addr] = Owner{}
	}
	_, err = node.choose(pod, taken, nil)
	var none *NoAddressError
	if errors.As(err, &none) {
		if all, err := s.Assignments(); err == nil && hasAddress(all, owner) {
			return nil // its own count, too
		}
	}
	return err
}

// hasAddress reports whether an attachment, or an earlier sandbox of its pod, has an address.
func hasAddress(taken map[netip.Addr]Owner, owner Owner) bool {
	for _, other := range taken {
		if other.Attachment == owner.Attachment || other.isPast(owner) {
			return true
		}
	}
	return false
}

// isAdopted reports whether an address was adopted from a pod.
func (o Owner) isAdopted(uid string) bool { return o.Container == "" && o.UID != "" && o.UID == uid }

// isPast reports whether a pod that gets a sandbox no longer has an address: it was adopted, or is of a sandbox that is
// gone, and that its runtime has forgotten.
func (o Owner) isPast(owner Owner) bool {
	return o.isAdopted(owner.UID) || o.UID != "" && o.UID == owner.UID && o.Container != owner.Container && o.IsGone()
}

// IsGone reports whether the network namespace of a sandbox is gone. It is not known where this process does not see the
// directory.
func (o Owner) IsGone() bool {
	if o.Netns == "" {
		return false
	}
	if _, err := os.Stat(filepath.Dir(o.Netns)); err != nil {
		return false
	}
	_, err := os.Stat(o.Netns)
	return errors.Is(err, fs.ErrNotExist)
}

// assignLocked links a draft to a free address of each family that the attachment has none of yet, and returns all its
// addresses. It frees the addresses of the pod's earlier sandboxes, which are gone.
func (s *Store) assignLocked(owner Owner, draft string) (found []netip.Addr, err error) {
	node, err := s.Ready()
	if err != nil {
		return nil, err
	}
	pod, err := node.pod(owner)
	if err != nil {
		return nil, err
	}
	taken, err := s.Assignments()
	if err != nil {
		return nil, err
	}
	for addr, other := range taken {
		if other.isPast(owner) {
			if err := s.remove(addr); err != nil {
				return nil, err
			}
			delete(taken, addr)
		}
	}
	last := s.readLast(node)
	for _, family := range ipalloc.Families() {
		if addr := addressOf(taken, owner.Attachment, family); addr.IsValid() {
			found = append(found, addr)
			node.Families[family] = false
		}
	}
	chosen, err := node.choose(pod, taken, last)
	if err != nil {
		return nil, err
	}
	for i, addr := range chosen {
		if err := os.Link(draft, s.addressPath(addr)); err != nil {
			err = fmt.Errorf("assigning %s: %w", addr, err)
			for _, linked := range chosen[:i] {
				err = errors.Join(err, s.remove(linked))
			}
			return nil, err
		}
	}
	if len(chosen) > 0 {
		s.writeLast(last)
	}
	found = append(found, chosen...)
	slices.SortFunc(found, netip.Addr.Compare) // IPv4 first
	return found, nil
}

// addressOf returns an attachment's address of a family; the zero Addr: it has none.
func addressOf(taken map[netip.Addr]Owner, attachment Attachment, family ipalloc.Family) netip.Addr {
	for _, addr := range slices.SortedFunc(maps.Keys(taken), netip.Addr.Compare) {
		if taken[addr].Attachment == attachment && ipalloc.FamilyOf(addr) == family {
			return addr
		}
	}
	return netip.Addr{}
}

// Release frees the addresses of an attachment. It may have none.
func (s *Store) Release(ctx context.Context, attachment Attachment) error {
	return s.ReleaseWhere(ctx, func(_ netip.Addr, owner Owner) bool { return owner.Attachment == attachment })
}

// ReleasePod frees the addresses of an attachment. It also frees those that were adopted from its pod, unless the network
// namespace is gone: then the attachment may be an older sandbox of a running pod.
func (s *Store) ReleasePod(ctx context.Context, owner Owner) error {
	_, err := os.Stat(owner.Netns)
	isThere := err == nil
	return s.ReleaseWhere(ctx, func(_ netip.Addr, other Owner) bool {
		return other.Attachment == owner.Attachment || isThere && other.isAdopted(owner.UID)
	})
}

// ReleaseWhere frees the addresses that isFree selects. It writes nothing if there are none.
func (s *Store) ReleaseWhere(ctx context.Context, isFree func(netip.Addr, Owner) bool) error {
	taken, err := s.Assignments()
	if err != nil {
		return err
	}
	maps.DeleteFunc(taken, func(addr netip.Addr, owner Owner) bool { return !isFree(addr, owner) })
	if len(taken) == 0 {
		return nil
	}
	err = s.locked(ctx, func() error {
		taken, err := s.Assignments()
		if err != nil {
			return err
		}
		for addr, owner := range taken {
			if isFree(addr, owner) {
				err = errors.Join(err, s.remove(addr))
			}
		}
		return err
	})
	return errors.Join(err, s.syncAddresses()) // after the lock: a sync takes milliseconds
}

// remove frees an address.
func (s *Store) remove(addr netip.Addr) error {
	if err := os.Remove(s.addressPath(addr)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("releasing %s: %w", addr, err)
	}
	return nil
}

// Adopt records addresses that pods have already, as a store that was lost, or that is new, lacks them. An address with an
// owner keeps it, unless that is gone.
func (s *Store) Adopt(ctx context.Context, owners map[netip.Addr]Owner, isGone func(Owner) bool) error {
	taken, err := s.Assignments()
	if err != nil {
		return err
	}
	for addr, owner := range owners {
		holder, isTaken := taken[addr]
		if isTaken && (holder.UID == owner.UID || !isGone(holder)) {
			continue
		}
		draft, err := s.writeDraft(owner)
		if err != nil {
			return err
		}
		put := os.Link
		if isTaken {
			put = os.Rename
		}
		err = s.locked(ctx, func() error { return put(draft, s.addressPath(addr)) })
		s.removeDraft(draft)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("adopting %s: %w", addr, err)
		}
	}
	return s.syncAddresses()
}

// Assignments returns the owners of all addresses. That of a file which cannot be read is zero.
func (s *Store) Assignments() (map[netip.Addr]Owner, error) {
	addrs, err := s.addresses()
	if err != nil {
		return nil, err
	}
	taken := make(map[netip.Addr]Owner, len(addrs))
	for _, addr := range addrs {
		var owner Owner
		content, err := os.ReadFile(s.addressPath(addr))
		if errors.Is(err, fs.ErrNotExist) {
			continue // released just now
		}
		if err == nil {
			_ = json.Unmarshal(content, &owner) // an address without a readable owner is taken all the same
		}
		taken[addr] = owner
	}
	return taken, nil
}

// addresses returns the addresses that are taken.
func (s *Store) addresses() ([]netip.Addr, error) {
	files, err := os.ReadDir(s.path("addresses"))
	if err != nil {
		return nil, fmt.Errorf("reading the store of addresses: %w", err)
	}
	addrs := make([]netip.Addr, 0, len(files))
	for _, file := range files {
		if addr, err := netip.ParseAddr(file.Name()); err == nil { // others are not ours
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}
