package whole

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// Rules judge every version of every object, and count the writes of assignments by
// writer. Violations have the rule numbers of package invariant.
type Rules struct {
	carrier Carrier

	mu     sync.Mutex
	lists  map[string][]Entry             // by node that has an object with one
	last   map[string][]Entry             // as they were when their object was deleted under its Node
	nodes  map[string]client.Object       // that there are
	pools  map[string]*v1alpha1.PodIPPool // that there are
	blocks map[string]block               // by name
	// drained are the CIDRs that drain on a node, or once did: the operator may not have seen yet
	// that a restored backup has made another object of the block, in service again.
	drained map[drain]bool
	own     map[string][]netip.Addr           // agents' addresses, by node
	pods    map[string]map[string]*corev1.Pod // by node and name
	writes  map[string]int                    // of lists, by writer
	taken   int                               // CIDRs removed from lists
	asked   int                               // the number of times that agents were asked
	broken  []invariant.Violation
	// moments are the events of CIDRs, in order.
	moments []Moment
}

// New returns Rules without objects.
func New(c Carrier) *Rules {
	return &Rules{
		carrier: c, lists: map[string][]Entry{}, last: map[string][]Entry{}, nodes: map[string]client.Object{}, pools: map[string]*v1alpha1.PodIPPool{}, blocks: map[string]block{}, drained: map[drain]bool{},
		own: map[string][]netip.Addr{}, pods: map[string]map[string]*corev1.Pod{}, writes: map[string]int{},
	}
}

// Judges says of a violation that an invariant.Checker found whether it is one here too: of blocks
// alone, but for the pools of crd mode. No agent reads its fields, and agents in kubernetes mode
// write podCIDRs of their own: Rules judge the assignments.
func Judges(v invariant.Violation) bool {
	return strings.HasPrefix(v.Subject, "PodIPBlock ") && !strings.Contains(v.Text, "in the pool of node")
}

// Begin takes the existing objects as the initial state.
func (r *Rules) Begin(kind invariant.Kind, list client.ObjectList) error {
	err := meta.EachListItem(list, func(o runtime.Object) error {
		object, ok := o.(client.Object)
		if ok {
			r.See(invariant.Change{Kind: kind, Name: object.GetName(), New: object})
		}
		return nil
	})
	clear(r.writes)
	return err
}

// See judges one version, and makes it the state. Versions must be passed in order.
func (r *Rules) See(c invariant.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch c.Kind {
	case invariant.KindBlock:
		r.seeBlock(c)
	case invariant.KindPod:
		r.seePod(c)
	case invariant.KindPool:
		r.pools[c.Name], _ = c.New.(*v1alpha1.PodIPPool)
	case invariant.KindNode:
		if r.nodes[c.Name] = c.New; c.New == nil {
			delete(r.last, c.Name)
		}
	}
	object := c.New
	if object == nil {
		object = c.Old
	}
	if object == nil {
		return
	}
	if c.Kind == invariant.KindCiliumNode && c.New != nil {
		r.own[c.Name] = OwnAddresses(c.New)
	}
	if _, is := r.carrier.Entries(object); is {
		r.seeList(c)
		r.seeRequests(c)
	}
	if c.Kind == invariant.KindCiliumNode && c.New == nil {
		delete(r.own, c.Name)
	}
}

// seeBlock is rule 1 for a block that is created or deleted.
func (r *Rules) seeBlock(c invariant.Change) {
	was, known := r.blocks[c.Name]
	delete(r.blocks, c.Name)
	if b, ok := BlockOf(c.New); ok {
		if meta.IsStatusConditionTrue(c.New.(*v1alpha1.PodIPBlock).Status.Conditions, v1alpha1.BlockDraining) {
			r.drained[drain{b.Node, b.CIDR}] = true
		}
		from := c.Version
		if was.Cooling {
			from = was.from
		}
		r.blocks[c.Name] = block{b, from}
		if !known {
			r.note(c, b.CIDR, IsCreated)
			r.made(c, b)
		}
		return
	}
	old, ok := BlockOf(c.Old)
	r.note(c, old.CIDR, IsDeleted)
	for node, list := range r.lists {
		if ok && r.overlaps(node, list, old.CIDR) {
			r.find(c, 1, "%s of %s deleted while assigned to %s", old.CIDR, old.Node, node)
		}
	}
}

// overlaps reports whether a CIDR of a node's list that is no block of the node overlaps another: of
// two blocks that overlap, the later one may exist while it is not assigned.
func (r *Rules) overlaps(node string, list []Entry, cidr netip.Prefix) bool {
	return overlaps(slices.DeleteFunc(slices.Clone(list), func(e Entry) bool { return e.CIDR != cidr && r.isBlock(node, e.CIDR) }), cidr)
}

func (r *Rules) isBlock(node string, cidr netip.Prefix) bool {
	for _, b := range r.blocks {
		if b.Node == node && b.CIDR == cidr {
			return true
		}
	}
	return false
}

func (r *Rules) made(c invariant.Change, b Block) {
	for node, list := range r.lists {
		if node != b.Node && r.overlaps(node, list, b.CIDR) {
			r.find(c, 1, "%s created for %s while %s is assigned a part of it", b.CIDR, b.Node, node)
		}
	}
}

func (r *Rules) seePod(c invariant.Change) {
	if old, ok := c.Old.(*corev1.Pod); ok {
		delete(r.pods[old.Spec.NodeName], c.Name)
	}
	if pod, ok := c.New.(*corev1.Pod); ok && pod.Spec.NodeName != "" && !pod.Spec.HostNetwork {
		if r.pods[pod.Spec.NodeName] == nil {
			r.pods[pod.Spec.NodeName] = map[string]*corev1.Pod{}
		}
		r.pods[pod.Spec.NodeName][c.Name] = pod
	}
}

func (r *Rules) find(c invariant.Change, rule int, format string, args ...any) {
	r.report(invariant.Violation{
		Rule: rule, Subject: string(c.Kind) + " " + c.Name, Version: c.Version, Text: fmt.Sprintf(format, args...),
	})
}

// report records a violation; a lasting one is recorded once.
func (r *Rules) report(v invariant.Violation) {
	known := func(o invariant.Violation) bool {
		return o.Rule == v.Rule && o.Subject == v.Subject && o.Text == v.Text
	}
	if !slices.ContainsFunc(r.broken, known) {
		r.broken = append(r.broken, v)
	}
}

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

// drain is a CIDR that drained on a node.
type drain struct {
	node string
	cidr netip.Prefix
}

// block is an existing one. Where it cools down, from is the version since when.
type block struct {
	Block
	from uint64
}

// Step judges a version like See, and returns the violations that it found.
func (r *Rules) Step(c invariant.Change) []invariant.Violation {
	before := len(r.broken)
	r.See(c)
	return slices.Clone(r.broken[before:])
}

// Take makes a version the state without judging it, for writers to whom the rules do not apply.
func (r *Rules) Take(c invariant.Change) {
	before := len(r.broken)
	r.See(c)
	r.broken = r.broken[:before]
}

func versionOf(o client.Object) uint64 {
	version, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64) // the API server's own
	return version
}

// Moment is when something happened to a block.
type Moment struct {
	CIDR netip.Prefix
	What Happening
	At   time.Time
}

// Happening is an event of a block.
type Happening int

// Events of a block.
const (
	IsAssigned   Happening = iota // it is assigned to a node's agent
	IsUnassigned                  // it is no longer assigned
	IsCreated                     // its object is created
	IsDeleted                     // its object is deleted: any node may claim it
)

func (r *Rules) note(c invariant.Change, cidr netip.Prefix, what Happening) {
	r.moments = append(r.moments, Moment{cidr, what, c.Received})
}

// Timeline returns the events of CIDRs so far.
func (r *Rules) Timeline() []Moment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.moments)
}

// Violations returns all violations so far, oldest first.
func (r *Rules) Violations() []invariant.Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.broken)
}

// Writes returns the number of changes of lists, by writer.
func (r *Rules) Writes() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.writes)
}

// Taken returns the number of CIDRs that were removed from lists of remaining objects.
func (r *Rules) Taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// KnowsWriters reports whether the writer of a list is known.
func (r *Rules) KnowsWriters() bool { return r.carrier.KnowsWriters() }

// Asked returns the number of times that agents were asked for their addresses.
func (r *Rules) Asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}
