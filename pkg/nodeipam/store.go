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
	"time"

	"golang.org/x/sys/unix"

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
	dir string
}

// Open returns the store in a directory, and creates it.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir}
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
	draft, err := s.writeDraft(owner) // it is synced before the lock, and the links after it: a sync takes milliseconds
	if err != nil {
		return nil, err
	}
	defer s.removeDraft(draft)
	var found, added []netip.Addr
	err = s.locked(ctx, func() error {
		var err error
		found, added, err = s.assignLocked(owner, draft)
		return err
	})
	if err == nil {
		err = s.syncAddresses()
	}
	if err == nil {
		return found, nil
	}
	for _, addr := range added {
		err = errors.Join(err, s.remove(addr))
	}
	return nil, err
}

// assignLocked links a draft to a free address of each family that the attachment has none of yet. It returns all
// addresses of the attachment, and those that it added, also beside an error.
func (s *Store) assignLocked(owner Owner, draft string) (found, added []netip.Addr, err error) {
	node, err := s.Node()
	if err != nil {
		return nil, nil, err
	}
	pod, err := node.pod(owner)
	if err != nil {
		return nil, nil, err
	}
	taken, err := s.Assignments()
	if err != nil {
		return nil, nil, err
	}
	last := s.readLast(node)
	for _, family := range ipalloc.Families() {
		if !node.Families[family] {
			continue
		}
		addr := addressOf(taken, owner.Attachment, family)
		if !addr.IsValid() {
			block, free := node.firstFree(pod.Pools[family], family, taken, last)
			if !free.IsValid() {
				return nil, added, &NoAddressError{pod.Pools[family], family}
			}
			if err := os.Link(draft, s.addressPath(free)); err != nil {
				return nil, added, fmt.Errorf("assigning %s: %w", free, err)
			}
			added = append(added, free)
			last[block] = free
			addr = free
		}
		found = append(found, addr)
	}
	if len(added) > 0 {
		s.writeLast(last)
	}
	return found, added, nil
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

// ReleaseWhere frees the addresses that isFree selects.
func (s *Store) ReleaseWhere(ctx context.Context, isFree func(netip.Addr, Owner) bool) error {
	err := s.locked(ctx, func() error {
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

// Adopt records addresses that pods have already, as a store that was lost, or that is new, lacks them. An address
// with an owner keeps it.
func (s *Store) Adopt(ctx context.Context, owners map[netip.Addr]Owner) error {
	return s.locked(ctx, func() error {
		for addr, owner := range owners {
			draft, err := s.writeDraft(owner)
			if err != nil {
				return err
			}
			err = os.Link(draft, s.addressPath(addr))
			s.removeDraft(draft)
			if err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("adopting %s: %w", addr, err)
			}
		}
		return s.syncAddresses()
	})
}

// Assignments returns the owners of all addresses. That of a file which cannot be read is zero.
func (s *Store) Assignments() (map[netip.Addr]Owner, error) {
	files, err := os.ReadDir(s.path("addresses"))
	if err != nil {
		return nil, fmt.Errorf("reading the store of addresses: %w", err)
	}
	taken := make(map[netip.Addr]Owner, len(files))
	for _, file := range files {
		addr, err := netip.ParseAddr(file.Name())
		if err != nil {
			continue // not ours
		}
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

// writeDraft writes an owner into a file of its own, synced, and returns its path.
func (s *Store) writeDraft(owner Owner) (string, error) {
	content, err := json.Marshal(owner)
	if err != nil {
		return "", err
	}
	return s.writeSynced(content)
}

// writeSynced writes a new file with a name of its own, and syncs it.
func (s *Store) writeSynced(content []byte) (string, error) {
	file, err := os.CreateTemp(s.dir, draftPattern)
	if err != nil {
		return "", fmt.Errorf("writing to the store of addresses: %w", err)
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		s.removeDraft(file.Name())
		return "", fmt.Errorf("writing to the store of addresses: %w", err)
	}
	return file.Name(), nil
}

const draftPattern = "draft-*"

// removeDraft removes a draft. One that stays is harmless until RemoveDrafts removes it.
func (s *Store) removeDraft(path string) { _ = os.Remove(path) }

// RemoveDrafts removes drafts that killed processes left, if they are older than an hour.
func (s *Store) RemoveDrafts() {
	drafts, err := filepath.Glob(s.path(draftPattern))
	if err != nil {
		return
	}
	for _, draft := range drafts {
		if info, err := os.Stat(draft); err == nil && time.Since(info.ModTime()) > time.Hour {
			s.removeDraft(draft)
		}
	}
}

// syncAddresses makes links and removals of addresses outlive a crash of the machine.
func (s *Store) syncAddresses() error { return syncDir(s.path("addresses")) }

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("syncing the store of addresses: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("syncing the store of addresses: %w", err)
	}
	return nil
}

// LockAgent waits until no other node agent works on the store. The lock ends with the process.
func (s *Store) LockAgent(ctx context.Context) error {
	_, err := s.lock(ctx, "agent.lock")
	return err
}

// locked runs change while no other process changes the store.
func (s *Store) locked(ctx context.Context, change func() error) error {
	file, err := s.lock(ctx, "lock")
	if err != nil {
		return err
	}
	defer file.Close() // unlocks
	return change()
}

// lock locks a file until it is closed, in the order of the calls. The kernel closes the files of a process that dies.
func (s *Store) lock(ctx context.Context, name string) (*os.File, error) {
	file, err := os.OpenFile(s.path(name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the store of addresses: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- flock(file) }()
	select {
	case err := <-done:
		if err != nil {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", file.Name(), err), file.Close())
		}
		return file, nil
	case <-ctx.Done():
		go func() {
			<-done
			file.Close()
		}()
		return nil, fmt.Errorf("another process holds the lock %s: %w", file.Name(), ctx.Err())
	}
}

func flock(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
