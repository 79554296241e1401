package main

import (
	"fmt"
	"net/netip"
	"time"
)

// verdict is the result of judging a history.
type verdict struct {
	// requesting counts pods that request an address, plain those that do not.
	requesting, plain binds
	// versions is how many changes were judged.
	versions int
	// overOffers counts changes after which a Node offered more addresses than its
	// CiliumNode had and more than its pods request.
	overOffers int
	// longestWait is the longest time that a pod was pending while an eligible node had or
	// could get an address for it all along, longestPending the longest time regardless of
	// nodes.
	longestWait, longestPending time.Duration
	// full counts how often no eligible node had an address left, for any pod.
	full int
	// gaps are the times in which no eligible node offered an address while one could get a
	// block and a pod was pending, until the next such pod was bound.
	gaps []time.Duration
	// findings describes the first findings of each kind.
	findings []string
	counts   map[string]int
}

// binds counts bound pods.
type binds struct {
	bound int
	// wrong counts those for which no address was left.
	wrong int
	// most is the maximum bound within one second; inSecond is the count so far in second.
	most, inSecond int
	second         time.Duration
}

// bind counts a bound pod.
func (b *binds) bind(now time.Duration) {
	b.bound++
	if second := now.Truncate(time.Second); second != b.second {
		b.second, b.inSecond = second, 0
	}
	b.inSecond++
	b.most = max(b.most, b.inSecond)
}

// Kinds of findings.
const (
	wrongBind = "bound to a node without an address for it"
	overOffer = "offers more than there is"
	waited    = "pending too long"
	noAddress = "no address for a CNI ADD"
)

// mostFindings is how many findings of a kind are described.
const mostFindings = 5

func (v *verdict) found(kind, format string, args ...any) {
	v.counts[kind]++
	if v.counts[kind] <= mostFindings {
		v.findings = append(v.findings, kind+": "+fmt.Sprintf(format, args...))
	}
}

// world is the cluster as of one version.
type world struct {
	bound   time.Duration // how long a pod may wait while there is an address
	now     time.Duration
	nodes   map[string]*machine
	pods    map[string]*pod
	pending map[string]*pod
	blocks  map[string]netip.Prefix
	pools   map[string]*poolSeen
	// room is what pods of each zone could get now, and since when.
	room map[string]*room
	verdict
}

// machine is a node.
type machine struct {
	name      string
	node      *nodeSeen // nil: there is no Node
	addresses *addressesSeen
	pods      map[string]*pod // bound there, and not ended
	requested int
	hasRoom   bool // as last counted, in zone
	zone      string
}

type pod struct {
	podSeen
	name    string
	created time.Duration
	waited  bool // has been found pending for too long
}

// room describes where pods of a zone could be bound, or of any zone.
type room struct {
	nodes     int // that offer an address
	growing   bool
	available bool
	since     time.Duration
	// gap means that the last address was taken at emptied, while nodes can grow. back is when
	// nodes next offered one.
	gap           bool
	emptied, back time.Duration
}

// judge replays a history in the order of versions. bound is how long a pod may be pending
// while an eligible node has an address for it.
func judge(history []change, bound time.Duration) verdict {
	w := &world{
		bound: bound, nodes: map[string]*machine{}, pods: map[string]*pod{}, pending: map[string]*pod{},
		blocks: map[string]netip.Prefix{}, pools: map[string]*poolSeen{}, room: map[string]*room{"": {}},
		verdict: verdict{versions: len(history), counts: map[string]int{}},
	}
	inOrder(history)
	for _, c := range history {
		w.now = c.at
		switch {
		case c.pod != nil:
			w.podChanged(c)
		case c.node != nil:
			w.nodeChanged(c)
		case c.addresses != nil:
			w.addressesChanged(c)
		case c.block != nil:
			w.blockChanged(c)
		case c.pool != nil:
			w.poolChanged(c)
		}
	}
	for _, p := range w.pending {
		w.endWait(p)
	}
	return w.verdict
}

func (w *world) podChanged(c change) {
	p := w.pods[c.name]
	if p == nil {
		p = &pod{name: c.name, created: c.at}
		w.pods[c.name] = p
	}
	before := p.node
	p.podSeen = *c.pod
	if c.gone {
		delete(w.pods, c.name)
	}
	_, waits := w.pending[c.name]
	switch {
	case c.gone || p.ended || p.node != "":
		if waits {
			w.endWait(p)
			w.longestPending = max(w.longestPending, w.now-p.created)
			delete(w.pending, c.name)
		}
	case p.requests > 0:
		w.pending[c.name] = p
	}
	if p.node == "" {
		return
	}
	m := w.machine(p.node)
	switch {
	case c.gone || p.ended:
		m.drop(p)
	default:
		m.take(p)
		if before == "" {
			w.bind(m, p, c)
		}
	}
	w.count(m)
}

func (m *machine) take(p *pod) {
	if m.pods[p.name] == nil {
		m.requested += p.requests
	}
	m.pods[p.name] = p
}

func (m *machine) drop(p *pod) {
	if m.pods[p.name] != nil {
		m.requested -= p.requests
	}
	delete(m.pods, p.name)
}

// bind judges a pod that has just been bound, and counts it among the node's.
func (w *world) bind(m *machine, p *pod, c change) {
	b := &w.plain
	if p.requests > 0 {
		b = &w.requesting
	}
	b.bind(w.now)
	w.endGap(p)
	has := m.capacity()
	if len(m.pods) <= has {
		return
	}
	b.wrong++
	if p.requests > 0 {
		w.found(wrongBind, "pod %s, at version %d, to node %s: %d pods, %d addresses, %s", p.name, c.version, m.name, len(m.pods), has, m.offers())
	}
}

func (m *machine) offers() string {
	if m.node == nil {
		return "no Node"
	}
	return fmt.Sprintf("offers %d", m.node.offer)
}

// capacity returns how many pods the node has addresses for. An address that leaves counts if
// a pod has it: its agent refuses to release it.
func (m *machine) capacity() int {
	if m.addresses == nil {
		return 0
	}
	n := len(m.addresses.free)
	if len(m.addresses.leaving) == 0 {
		return n
	}
	held := make(map[netip.Addr]bool, len(m.pods))
	for _, p := range m.pods {
		held[p.address] = true
	}
	for _, a := range m.addresses.leaving {
		if held[a] {
			n++
		}
	}
	return n
}

func (w *world) nodeChanged(c change) {
	m := w.machine(c.name)
	m.node = c.node
	if c.gone {
		m.node = nil
	}
	w.count(m)
	w.checkOffer(m, c)
	w.grows()
}

func (w *world) addressesChanged(c change) {
	m := w.machine(c.name)
	m.addresses = c.addresses
	if c.gone {
		m.addresses = nil
	}
	w.checkOffer(m, c)
}

func (w *world) checkOffer(m *machine, c change) {
	if m.node == nil || m.node.offer < 0 || m.addresses == nil {
		return
	}
	if has := m.capacity(); m.node.offer > max(has, m.requested) {
		w.overOffers++
		w.found(overOffer, "node %s, at version %d: offers %d, has %d addresses, its pods request %d", m.name, c.version, m.node.offer, has, m.requested)
	}
}

func (w *world) blockChanged(c change) {
	w.blocks[c.name] = c.block.cidr
	if c.gone {
		delete(w.blocks, c.name)
	}
	w.grows()
}

func (w *world) poolChanged(c change) {
	w.pools[c.name] = c.pool
	if c.gone {
		delete(w.pools, c.name)
	}
	w.grows()
}

func (w *world) machine(name string) *machine {
	m := w.nodes[name]
	if m == nil {
		m = &machine{name: name, pods: map[string]*pod{}}
		w.nodes[name] = m
	}
	return m
}

func (w *world) roomOf(zone string) *room {
	r := w.room[zone]
	if r == nil {
		r = &room{}
		w.room[zone] = r
	}
	return r
}

// count records whether a node can admit a pod.
func (w *world) count(m *machine) {
	has := m.node != nil && !m.node.cordoned && m.node.offer > m.requested
	zone := m.zone
	if m.node != nil {
		zone = m.node.zone
	}
	if has == m.hasRoom && zone == m.zone {
		return
	}
	if m.hasRoom {
		w.roomOf("").nodes--
		w.roomOf(m.zone).nodes--
	}
	if has {
		w.roomOf("").nodes++
		w.roomOf(zone).nodes++
	}
	former := m.zone
	m.hasRoom, m.zone = has, zone
	for _, z := range []string{"", former, zone} {
		w.settle(z)
	}
}

// grows records which zones have nodes that can get a block.
func (w *world) grows() {
	any := false
	for _, p := range w.pools {
		free := 0
		for _, cidr := range p.cidrs {
			free += 1 << (p.blockBits - cidr.Bits())
			for _, b := range w.blocks {
				if cidr.Overlaps(b) {
					free--
				}
			}
		}
		w.roomOf(p.zone).growing = free > 0 && w.hasNodeIn(p.zone)
		any = any || w.roomOf(p.zone).growing
		w.settle(p.zone)
	}
	w.roomOf("").growing = any
	w.settle("")
}

func (w *world) hasNodeIn(zone string) bool {
	for _, m := range w.nodes {
		if m.node != nil && !m.node.cordoned && m.node.zone == zone {
			return true
		}
	}
	return false
}

// settle records when room becomes available, and ends the waits where there is none.
func (w *world) settle(zone string) {
	r := w.roomOf(zone)
	r.noteGap(w.now)
	available := r.nodes > 0 || r.growing
	switch {
	case available && !r.available:
		r.since = w.now
	case !available && r.available:
		w.full++
		for _, p := range w.pending {
			if p.zone == zone {
				w.endWait(p)
			}
		}
	}
	r.available = available
}

// endWait judges how long a pod was pending although there was an address for it.
func (w *world) endWait(p *pod) {
	r := w.roomOf(p.zone)
	if !r.available || p.waited {
		return
	}
	wait := w.now - max(r.since, p.created)
	w.longestWait = max(w.longestWait, wait)
	if wait > w.bound {
		p.waited = true
		w.found(waited, "pod %s (zone %q) was pending for %s while a node had an address for it", p.name, p.zone, wait.Round(time.Millisecond))
	}
}

// noteGap records when the last address is taken while nodes can grow, and when they offer one
// again.
func (r *room) noteGap(now time.Duration) {
	going := r.gap && r.back == 0
	switch {
	case r.nodes > 0 && going:
		r.back = now
	case r.nodes == 0 && !going:
		r.gap, r.emptied, r.back = r.growing, now, 0
	}
}

// endGap counts a gap that a pod has waited through, when the pod is bound.
func (w *world) endGap(p *pod) {
	r := w.roomOf(p.zone)
	if r.gap && r.back > p.created {
		w.gaps = append(w.gaps, w.now-max(r.emptied, p.created))
		r.gap = false
	}
}
