package world

import (
	"errors"
	"maps"
	"net/netip"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/hostscope"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
)

// crashBackoff is the time that an agent that failed to start stays down.
const crashBackoff = 10 * time.Second

// phase is an agent's progress during its start (cilium/daemon/cmd/daemon.go:140, v1.20.1).
type phase int

const (
	down     phase = iota
	waiting        // its CiliumNode is made; it waits for a pool
	opened         // it answers the handshake, and its pods are not restored yet
	restored       // they are
	serving        // it has its own address, reports, and takes CNI ADDs
)

// machine is the machine of a node: its agent, its pods, its disk. It may keep running while
// its Node is gone.
type machine struct {
	w    *World
	name string
	// off: it is switched off, and its disk is lost.
	off bool
	// held: its agent does not start for now.
	held bool
	// families are those its agent runs; switched: they were different before.
	families []agent.Family
	switched bool
	// unlisted: a user removed an entry of its podCIDRs.
	unlisted bool

	// starts is the IPAM mode of its agent's next start, mode the one of its last run; adopt.None
	// is crd mode. moved and served: since it last ran in its old mode, it has run in crd mode, and
	// assigned addresses to pods there.
	starts, mode  adopt.Source
	moved, served bool

	// On disk.
	endpoints map[string]*endpoint // by pod slot
	router    map[agent.Family]netip.Addr
	evicted   bool // with its Node its pods are to go

	// State of the current run of the agent.
	phase  phase
	run    int
	node   types.UID // of the Node it knows
	store  *agent.Store
	old    *hostscope.Agent // in its place, in another mode
	whole  *multipool.Pools // in its place, where whole blocks are assigned
	waits  map[waitsFor]time.Time
	seen   *ciliumv2.CiliumNode
	read   int // versions of CiliumNodes it has seen
	asked  bool
	wrote  time.Time
	picks  uint64
	silent bool      // it never answers
	again  time.Time // when its kubelet starts it again

	kubelet   *kubelet
	nodeAgent *nodeAgent // nil: Cilium's agent assigns addresses
}

// open lets the agent assign addresses to the pods it had.
func (m *machine) open() {
	switch {
	case m.store != nil:
		m.store.Open()
	case m.w.fixed():
		m.openFixed()
	}
	m.phase = opened
}

// boot starts the agent, which creates or takes over its CiliumNode.
func (m *machine) boot() {
	m.leavePods()
	m.run++
	m.kubelet.pod.run, m.kubelet.pod.ready, m.mode = m.run, false, m.starts
	if m.mode != adopt.None {
		m.bootOld()
		return
	}
	m.moved = true
	if m.nodeAgent != nil {
		m.bootDelegated()
		return
	}
	if m.w.whole() {
		m.bootWhole()
		return
	}
	if m.w.fixed() {
		m.bootFixed()
		return
	}
	m.store = agent.NewStore(agent.StoreOptions{
		Families: m.families,
		Pick: func(candidates []string) string {
			m.picks++
			return candidates[m.w.pick(m.name, m.picks, len(candidates))]
		},
		Trigger: func(string) { m.asked = true },
	})
	m.asked, m.wrote, m.phase = false, time.Time{}, waiting
	m.discover()
	m.read = len(m.w.api.history[KindCiliumNode])
	if cn, ok := m.w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode); ok {
		m.store.Observe(cn)
	}
}

// discover creates or updates the CiliumNode (pkg/nodediscovery/nodediscovery.go:222).
func (m *machine) discover() {
	node, ok := m.w.api.Get(KindNode, m.name).(*corev1.Node)
	if !ok {
		return
	}
	m.node = node.UID
	old, exists := m.w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: m.name}}
	if exists {
		cn = old.DeepCopy()
	}
	cn.OwnerReferences = ownerOf(node)
	cn.Labels = maps.Clone(node.Labels)
	cn.Spec.BootID = m.bootID()
	cn.Spec.Addresses = nil
	if m.w.cfg.Cluster != nil {
		cn.Spec.Addresses = addressesOf(node)
	}
	for _, family := range m.w.cfg.Families { // also of one that it does not run any more
		if addr := m.router[family]; addr.IsValid() {
			cn.Spec.Addresses = append(cn.Spec.Addresses, ciliumv2.NodeAddress{Type: addressing.NodeCiliumInternalIP, IP: addr.String()})
		}
	}
	if m.w.fixed() {
		m.tellPodCIDRs(cn)
	}
	if exists {
		m.w.must(m.w.api.Update(cn, false))
	} else {
		m.w.must(m.w.api.Create(cn))
	}
}

func ownerOf(node *corev1.Node) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
}

// nextSeen returns the next version of its CiliumNode that it has not seen.
func (m *machine) nextSeen() (Version, bool) {
	h := m.w.api.history[KindCiliumNode]
	for ; m.read < len(h); m.read++ {
		if h[m.read].Key == m.name {
			return h[m.read], true
		}
	}
	return Version{}, false
}

// observeAll processes all events of the watch of its CiliumNode.
func (m *machine) observeAll() {
	for _, more := m.nextSeen(); more; _, more = m.nextSeen() {
		m.observe()
	}
}

func (m *machine) observe() {
	v, ok := m.nextSeen()
	if !ok {
		return
	}
	m.read++
	if m.whole != nil && m.w.cfg.Settings.ParkBlocks && m.w.pick(m.name, uint64(m.read), 3) == 0 {
		// Cilium's resource.Events delivers only the latest version of an object.
		for later, more := m.nextSeen(); more; later, more = m.nextSeen() {
			v, m.read = later, m.read+1
		}
	}
	cn, _ := v.New.(*ciliumv2.CiliumNode)
	if m.nodeAgent != nil {
		m.nodeAgent.sees(cn)
		return
	}
	if m.whole != nil {
		m.seesList(cn)
		return
	}
	m.store.Observe(cn)
}

// mayOpen reports whether everything exists that the agent waits for at start.
func (m *machine) mayOpen() bool {
	switch {
	case m.whole != nil:
		return m.whole.Ready()
	case m.store != nil:
		return m.store.MinimumReached()
	}
	return m.hasPodCIDRs()
}

// restore takes the addresses of the endpoints again. An endpoint with a refused address loses its
// network (daemon/cmd/endpoint_restore.go:688).
func (m *machine) restore() {
	m.phase = restored
	if m.whole != nil {
		defer m.whole.Restored()
	}
	defer func(lost int) {
		if m.w.Counts.Lost > lost {
			m.w.Counts.LossyRestarts++
		}
	}(m.w.Counts.Lost)
	for _, slot := range sortedKeys(m.endpoints) {
		e := m.endpoints[slot]
		e.off6 = e.v6.IsValid() && !m.runs(ipalloc.IPv6) // it is taken up again with the family
		if pod := m.w.api.Get(KindPod, e.owner()); pod == nil || pod.GetUID() != e.pod.GetUID() {
			delete(m.endpoints, slot) // its pod is gone
			continue
		}
		for i, addr := range e.addrs() {
			if err := m.take(e.pools[ipalloc.FamilyOf(addr)], addr, e.owner()+" [restored]"); err != nil {
				for _, taken := range e.addrs()[:i] {
					m.release(taken)
				}
				delete(m.endpoints, slot)
				m.w.rules.lost(m, e, addr, err)
				break
			}
		}
	}
}

// own takes an address for the router, the old one if possible, and opens the agent to pods. If
// there is none, the agent crashes.
func (m *machine) own() {
	for _, family := range m.families {
		if old := m.router[family]; old.IsValid() && m.take(crd.DefaultCiliumPool, old, "router") == nil {
			continue
		}
		addr, err := m.takeNext(family, "router")
		if err != nil {
			m.crash()
			m.kubelet.pod.ended, m.again = true, m.w.clock.now.Add(crashBackoff)
			return
		}
		m.router[family] = addr
	}
	m.discover()
	m.asked, m.phase = true, serving
	m.served = m.served || m.mode == adopt.None
	m.kubelet.pod.ready, m.kubelet.pod.ended = true, false
}

func (m *machine) crash() {
	m.phase, m.store, m.old, m.whole, m.waits, m.asked = down, nil, nil, nil, nil, false
	if m.nodeAgent == nil { // else it goes on
		m.seen = nil
	}
	m.kubelet.pod.ready = false
}

// mayReport reports whether a report is requested and due.
func (m *machine) mayReport() bool {
	if m.nodeAgent != nil {
		return false
	}
	if m.whole != nil {
		// The behavior of an agent that has not seen its own last write for this long is not
		// specified (docs/modes.md).
		if _, behind := m.nextSeen(); behind {
			return false
		}
	}
	return m.reads() && (m.asked || m.tired()) && !m.w.clock.now.Before(m.wrote.Add(m.w.cfg.UpdateRate))
}

// reads reports whether the agent runs and reads the operator's writes.
func (m *machine) reads() bool { return m.store != nil || m.whole != nil || m.nodeAgent.up() }

// report writes the whole status; after a conflict the next trigger tries again
// (pkg/ipam/crd.go:505).
func (m *machine) report() {
	if m.whole != nil {
		m.update()
		return
	}
	m.wrote, m.asked = m.w.clock.now, false
	cn := m.store.Report()
	if cn == nil {
		return
	}
	if _, err := m.w.api.Update(cn, true); err != nil {
		m.asked = true
	}
}

// reportNothing is the first report of older agents
// (https://github.com/cilium/cilium/pull/9888).
func (m *machine) reportNothing() {
	if cn, ok := m.w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode); ok {
		cn = cn.DeepCopy()
		cn.Status.IPAM.Used = nil
		m.w.must(m.w.api.Update(cn, true))
	}
}

// switchOff is the end of the machine and of its disk.
func (m *machine) switchOff() {
	if m.nodeAgent != nil {
		m.loseDisk()
	}
	m.crash()
	m.off, m.endpoints, m.router = true, map[string]*endpoint{}, map[agent.Family]netip.Addr{}
}

// releasing reports whether a restore was refused because of a release entry.
func releasing(err error) bool { return errors.Is(err, agent.ErrReleasing) }
