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

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// Rules judge every version of every object, and count the writes of assignments by
// writer. Violations have the rule numbers of package invariant.
type Rules struct {
	carrier Carrier

	mu     sync.Mutex
	lists  map[string][]netip.Prefix         // by node that has an object with one
	last   map[string][]netip.Prefix         // as they were when their object was deleted
	nodes  map[string]client.Object          // that there are
	blocks map[string]block                  // by name
	own    map[string][]netip.Addr           // agents' addresses, by node
	pods   map[string]map[string]*corev1.Pod // by node and name
	writes map[string]int                    // of lists, by writer
	taken  int                               // CIDRs removed from lists
	asked  int                               // the number of times that agents were asked
	broken []invariant.Violation
	// moments are the events of CIDRs, in order.
	moments []Moment
}

// New returns Rules without objects.
func New(c Carrier) *Rules {
	return &Rules{
		carrier: c, lists: map[string][]netip.Prefix{}, last: map[string][]netip.Prefix{}, nodes: map[string]client.Object{}, blocks: map[string]block{},
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
	case invariant.KindNode:
		r.nodes[c.Name] = c.New
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
	if _, is := r.carrier.CIDRs(object); is {
		r.seeList(c)
	}
	if c.Kind == invariant.KindCiliumNode && c.New == nil {
		delete(r.own, c.Name)
	}
}

func (r *Rules) seeList(c invariant.Change) {
	before, after, who := r.lists[c.Name], []netip.Prefix(nil), Unknown
	delete(r.lists, c.Name)
	if c.New != nil {
		after, _ = r.carrier.CIDRs(c.New)
		r.lists[c.Name] = after
	}
	if slices.Equal(before, after) {
		return
	}
	if c.New != nil {
		who = writer(c.New, r.carrier.Fields)
	}
	r.writes[who]++
	for _, cidr := range after {
		if !slices.Contains(before, cidr) {
			r.note(c, cidr, IsAssigned)
			r.came(c, cidr, who)
		}
	}
	for _, cidr := range before {
		if slices.Contains(after, cidr) {
			continue
		}
		r.note(c, cidr, IsUnassigned)
		switch {
		case c.New != nil:
			r.taken++
			r.went(c, cidr, who)
		case c.Kind == invariant.KindCiliumNode && r.nodes[c.Name] != nil && !invariant.OwnedByAnother(c.Old, r.nodes[c.Name]):
			r.inUse(c, cidr, "deleted with its object, under its Node,")
		}
	}
	if c.New == nil {
		r.last[c.Name] = before
	} else {
		delete(r.last, c.Name)
	}
}

// came checks rule 1 for a CIDR that has just been added to an agent's list. CIDRs of a new object
// do not count: a user wrote them, or the operator restores the content of the deleted object.
func (r *Rules) came(c invariant.Change, cidr netip.Prefix, who string) {
	for other, list := range r.lists {
		if other != c.Name && slices.ContainsFunc(list, cidr.Overlaps) {
			r.find(c, 1, "assigned %s by %s, which overlaps a CIDR of %s", cidr, who, other)
		}
	}
	if c.Old == nil && (who != OperatorWriter || slices.Contains(r.last[c.Name], cidr)) {
		return
	}
	for _, b := range r.blocks {
		if b.CIDR == cidr && b.Node == c.Name && (!b.Cooling || c.Old != nil && late(c, b)) {
			return
		}
	}
	r.find(c, 1, "assigned %s by %s, and it has no such block in service", cidr, who)
}

// late reports whether a write may have been decided on before a block began to cool
// down: its object had not changed since.
func late(c invariant.Change, b block) bool { return versionOf(c.Old) < b.from }

// went is rule 2 for a CIDR that is no longer assigned.
func (r *Rules) went(c invariant.Change, cidr netip.Prefix, who string) {
	if who != r.carrier.Takes {
		r.find(c, 2, "%s removed by %s", cidr, who)
	}
	r.inUse(c, cidr, "removed by "+who)
}

// inUse is rule 2 for a CIDR that went somehow, while anything says that it is used.
func (r *Rules) inUse(c invariant.Change, cidr netip.Prefix, how string) {
	for _, addr := range r.own[c.Name] {
		if cidr.Contains(addr) {
			r.find(c, 2, "%s %s while the agent itself has %s", cidr, how, addr)
		}
	}
	for name, pod := range r.pods[c.Name] {
		for _, ip := range pod.Status.PodIPs {
			if addr, err := netip.ParseAddr(ip.IP); err == nil && cidr.Contains(addr) && pod.DeletionTimestamp == nil {
				r.find(c, 2, "%s %s while pod %s has %s", cidr, how, name, addr)
			}
		}
	}
}

// seeBlock is rule 1 for a block that is created or deleted.
func (r *Rules) seeBlock(c invariant.Change) {
	was, known := r.blocks[c.Name]
	delete(r.blocks, c.Name)
	if b, ok := BlockOf(c.New); ok {
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
		if ok && slices.ContainsFunc(list, old.CIDR.Overlaps) {
			r.find(c, 1, "%s of %s deleted while assigned to %s", old.CIDR, old.Node, node)
		}
	}
}

func (r *Rules) made(c invariant.Change, b Block) {
	for node, list := range r.lists {
		if node != b.Node && slices.ContainsFunc(list, b.CIDR.Overlaps) {
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

// block is an existing one. Where it cools down, from is the version since when.
type block struct {
	Block
	from uint64
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
