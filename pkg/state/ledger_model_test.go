package state

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// ledgerModel is an API server that holds blocks, a lagging watch of them, and nodes that
// claim through a ledger as the node controller does.
type ledgerModel struct {
	throw   func(n int) int // a number from 0 to n-1
	ledger  *Ledger
	pools   []*crd.Pool
	log     []string
	version int
	blocks  map[netip.Prefix]crd.Block // stored in the API server
	events  []func()                   // not yet shown by the watch
	claims  map[string]netip.Prefix    // claimed and not yet sent, by node
	answers map[string]crd.Block       // created and not yet answered, by node
}

var modelNodes = []string{"a", "b", "c"}

func newLedgerModel(t *testing.T, throw func(int) int) *ledgerModel {
	pool, ledger := fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28")), ReadyLedger()
	ledger.setPools(nil, map[string]*crd.Pool{"p": pool})
	return &ledgerModel{
		throw: throw, ledger: ledger, pools: []*crd.Pool{pool},
		blocks: map[netip.Prefix]crd.Block{}, claims: map[string]netip.Prefix{}, answers: map[string]crd.Block{},
	}
}

func (m *ledgerModel) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

// store stores a block and queues its watch event.
func (m *ledgerModel) store(b crd.Block) crd.Block {
	m.version++
	if b.UID == "" {
		b = fixtures.Block(b.CIDR.String(), b.Pool, b.Node, m.version)
	}
	b.ResourceVersion = fmt.Sprint(m.version)
	m.blocks[b.CIDR] = b
	m.events = append(m.events, func() { m.note("show %s@%s of %s", b.CIDR, b.ResourceVersion, b.Node); m.ledger.Upsert(b) })
	return b
}

func (m *ledgerModel) remove(b crd.Block) {
	m.version++
	delete(m.blocks, b.CIDR)
	b.ResourceVersion = fmt.Sprint(m.version)
	m.events = append(m.events, func() { m.note("show %s gone", b.CIDR); m.ledger.Remove(b) })
}

func (m *ledgerModel) anyBlock() (crd.Block, bool) {
	all := slices.SortedFunc(maps.Values(m.blocks), func(a, b crd.Block) int { return a.CIDR.Compare(b.CIDR) })
	if len(all) == 0 {
		return crd.Block{}, false
	}
	return all[m.throw(len(all))], true
}

func (m *ledgerModel) anyCIDR() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(4 * m.throw(4))}), 30)
}

// step performs one random action.
func (m *ledgerModel) step(t *testing.T) {
	node := modelNodes[m.throw(len(modelNodes))]
	switch m.throw(10) {
	case 0, 1:
		m.claim(t, node)
	case 2:
		m.send(node)
	case 3:
		m.answer(node)
	case 4, 5:
		m.show()
	case 6: // another process or a person
		cidr := m.anyCIDR()
		if _, taken := m.blocks[cidr]; !taken {
			m.note("%s made by another for %s", cidr, node)
			m.store(crd.Block{CIDR: cidr, Pool: "p", Node: node})
		} else if m.throw(2) == 0 {
			m.note("%s deleted by another", cidr)
			m.remove(m.blocks[cidr])
		}
	case 7:
		m.changePhase()
	case 8:
		m.resolve(node)
	case 9:
		if cidr := m.anyCIDR(); m.throw(3) > 0 {
			m.note("%s is pinned to %s", cidr, node)
			m.ledger.Pins.Set(crd.Pin{CIDR: cidr, Node: node})
		} else {
			m.note("%s is pinned no more", cidr)
			m.ledger.Pins.Remove(cidr)
		}
	}
}

func (m *ledgerModel) busy(node string) bool {
	_, claimed := m.claims[node]
	_, created := m.answers[node]
	return claimed || created
}

func (m *ledgerModel) claim(t *testing.T, node string) {
	if m.busy(node) {
		return
	}
	cidr, _, err := m.ledger.Claim(ipalloc.IPv4, node, "", m.pools)
	if err != nil {
		return
	}
	if b, known := m.ledger.Block(cidr); known {
		t.Errorf("%s claimed for %s, though %s is known to hold it", cidr, node, b.Node)
	}
	to, _ := m.ledger.Pins.pinned.Owner(cidr)
	if to.Node != "" && to.Node != node {
		t.Errorf("%s claimed for %s, though it is pinned to %s", cidr, node, to)
	}
	if missing := m.ledger.Facts(node).missingPins; len(missing) > 0 && to.Node == "" {
		t.Errorf("%s claimed for %s before %s, which are pinned to it", cidr, node, missing)
	}
	m.note("%s claims %s", node, cidr)
	m.claims[node] = cidr
}

// send creates the block that a node has claimed, or fails to.
func (m *ledgerModel) send(node string) {
	cidr, ok := m.claims[node]
	if !ok {
		return
	}
	delete(m.claims, node)
	live, exists := m.blocks[cidr]
	switch fate := m.throw(6); {
	case fate == 0:
		m.note("%s: refused", cidr)
		m.ledger.Forget(node, cidr)
	case fate == 1:
		m.note("%s: not sent, outcome unknown", cidr)
		m.ledger.MarkUnknown(node, cidr)
	case exists:
		m.note("%s: exists, of %s", cidr, live.Node)
		m.ledger.Assume(live)
	case fate == 2:
		m.note("%s: created, answer lost", cidr)
		m.store(crd.Block{CIDR: cidr, Pool: "p", Node: node})
		m.ledger.MarkUnknown(node, cidr)
	default:
		m.note("%s: created", cidr)
		m.answers[node] = m.store(crd.Block{CIDR: cidr, Pool: "p", Node: node})
	}
}

func (m *ledgerModel) answer(node string) {
	if b, ok := m.answers[node]; ok {
		delete(m.answers, node)
		m.note("%s: answered", b.CIDR)
		m.ledger.Assume(b)
	}
}

func (m *ledgerModel) show() {
	if len(m.events) > 0 {
		m.events[0]()
		m.events = m.events[1:]
	}
}

// changePhase writes a block as the node controller does: based on the version that the
// ledger knows, or not at all.
func (m *ledgerModel) changePhase() {
	live, ok := m.anyBlock()
	if !ok {
		return
	}
	known, held := m.ledger.Block(live.CIDR)
	if !held || known.ResourceVersion != live.ResourceVersion {
		return
	}
	if live.Phase == ipalloc.CoolingDown {
		m.note("%s deleted by us", live.CIDR)
		m.remove(live)
		m.ledger.Remove(live)
		return
	}
	live.Phase++
	m.note("%s to %s", live.CIDR, live.Phase)
	m.ledger.Assume(m.store(live))
}

// resolve looks up the unknown claims of a node.
func (m *ledgerModel) resolve(node string) {
	for _, cidr := range m.ledger.UnknownClaims(node) {
		if live, exists := m.blocks[cidr]; exists {
			m.note("%s: found, of %s", cidr, live.Node)
			m.ledger.Assume(live)
		} else {
			m.note("%s: not found", cidr)
			m.ledger.Forget(node, cidr)
		}
	}
}

// settle completes all pending work.
func (m *ledgerModel) settle() {
	for _, cidr := range m.ledger.Pins.All() {
		m.ledger.Pins.Remove(cidr)
	}
	for _, node := range modelNodes {
		m.send(node)
		m.answer(node)
		m.resolve(node)
	}
	for len(m.events) > 0 {
		m.show()
	}
}

// checkClaims checks that the claims under way are exactly the held CIDRs without a block.
func (m *ledgerModel) checkClaims(t *testing.T) {
	t.Helper()
	want, got := map[netip.Prefix]string{}, map[netip.Prefix]string{}
	for i := range 4 {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(4 * i)}), 30)
		if owner, held := m.ledger.space.Owner(cidr); held && m.ledger.blocks.byCIDR[cidr] == nil {
			want[cidr] = owner.Node
		}
	}
	for node, claims := range m.ledger.claims.underWay {
		for _, cidr := range claims {
			got[cidr] = node
		}
	}
	if diff := cmp.Diff(want, got, fixtures.CompareNetip()); diff != "" {
		t.Errorf("claims under way (-want +got):\n%s", diff)
	}
}

// check compares the settled ledger with the API server.
func (m *ledgerModel) check(t *testing.T) {
	t.Helper()
	held := map[netip.Prefix]crd.Block{}
	for cidr, h := range m.ledger.blocks.byCIDR {
		held[cidr] = h.Block
	}
	if diff := cmp.Diff(m.blocks, held, fixtures.CompareNetip()); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	for i := range 4 {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(4 * i)}), 30)
		b, exists := m.blocks[cidr]
		want := ipalloc.Owner{Pool: b.Pool, Node: b.Node, Phase: b.Phase}
		if owner, held := m.ledger.space.Owner(cidr); held != exists || owner != want {
			t.Errorf("space says %s is held %t by %v (%s), want %t by %v (%s)", cidr, held, owner, owner.Phase, exists, want, want.Phase)
		}
	}
	cut, _ := m.pools[0].Cut(ipalloc.IPv4)
	if got, want := m.ledger.Free(cut), uint64(4-len(m.blocks)); got != want {
		t.Errorf("%d blocks are free, want %d", got, want)
	}
	ofNodes := 0
	for _, node := range modelNodes {
		ofNodes += len(m.ledger.NodeBlocks(node))
		if claims := m.ledger.Facts(node).Claims; claims != [2]int{} {
			t.Errorf("%s is still claiming %v", node, claims)
		}
		if unsure := m.ledger.UnknownClaims(node); len(unsure) > 0 {
			t.Errorf("%s is still in doubt about %v", node, unsure)
		}
	}
	ofPool, size := len(slices.Collect(m.ledger.PoolBlocks("p"))), m.ledger.Size("p")
	if ofNodes != len(m.blocks) || ofPool != len(m.blocks) || size != len(m.blocks) || len(m.ledger.blocks.byPool) != min(1, size) {
		t.Errorf("nodes have %d blocks and the pool %d, said to be %d, want %d", ofNodes, ofPool, size, len(m.blocks))
	}
	if n := len(m.ledger.claims.unknownOf); n > 0 {
		t.Errorf("%d CIDRs are still in doubt", n)
	}
}

// TestLedgerModel compares the ledger with an API server through lost responses, a lagging
// watch, and claims of other processes: no block known to be held is claimed, and once
// settled the ledger matches the API server exactly.
func TestLedgerModel(t *testing.T) {
	for seed := range uint64(300) {
		m := newLedgerModel(t, rand.New(rand.NewPCG(seed, 0)).IntN)
		for range 4 {
			for range 40 {
				m.step(t)
				m.checkClaims(t)
			}
			m.settle()
			m.check(t)
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%v", seed, m.log)
		}
	}
}

// FuzzLedger runs TestLedgerModel with arbitrary sequences of events.
func FuzzLedger(f *testing.F) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		data = data[:min(len(data), 4000)]
		m := newLedgerModel(t, func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := int(data[0])
			data = data[1:]
			return b % n
		})
		for step := 1; len(data) > 0; step++ {
			if m.step(t); step%40 == 0 {
				m.settle()
				m.check(t)
			}
		}
		m.settle()
		m.check(t)
		if t.Failed() {
			t.Logf("%v", m.log)
		}
	})
}

// FuzzForeign reads arbitrary CiliumNodes of a node that also has a block. No other node claims
// CIDRs that an agent or a peer would read from one, and all of them are free again once the
// CiliumNode is forgotten.
func FuzzForeign(f *testing.F) {
	f.Add("10.0.0.1 10.0.0.9", "10.0.0.2 ::ffff:10.0.0.10", "10.0.0.4/30")
	f.Add("", "10.0.0.9 ::ffff:10.0.0.13", "")
	f.Add("x 010.0.0.1 10.0.0.13/30", "", "10.0.0.0/8")
	f.Add("", "fe80::1%eth0", "0.0.0.0/0 10.0.0.13/30")
	f.Add("10.0.0.9", "", "10.0.0.0/16 10.0.0.13/15")
	f.Fuzz(func(t *testing.T, pool, used, podCIDRs string) {
		cn := fixtures.CiliumNode("n", "")
		cn.Spec.IPAM.Pool = fixtures.AllocationMap(strings.Fields(pool)...)
		cn.Status.IPAM.Used = fixtures.AllocationMap(strings.Fields(used)...)
		for _, word := range strings.Fields(podCIDRs) {
			if p, err := netip.ParsePrefix(word); err == nil {
				cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(p))
			}
		}
		l := ReadyLedger(fixtures.Block("10.0.0.0/30", "p", "n", 1))
		l.UpsertCiliumNode(ciliumnode.NewView(cn))
		pools := []*crd.Pool{fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))}
		for {
			cidr, _, err := l.Claim(ipalloc.IPv4, "m", "", pools)
			if err != nil {
				break
			}
			if what := firstNamed(cn, cidr); what != "" {
				t.Errorf("%s is claimed, and the CiliumNode names %s", cidr, what)
			}
			l.Forget("m", cidr)
			l.space.Reserve(cidr) // try the next one
			defer l.space.Unreserve(cidr)
		}
	})
}

// firstNamed returns the first CIDR that a CiliumNode names within cidr, parsed independently.
func firstNamed(cn *ciliumv2.CiliumNode, cidr netip.Prefix) string {
	for _, p := range cn.Spec.IPAM.PodCIDRs {
		if p.IsValid() && p.Overlaps(cidr) && p.Bits() >= 16 && (p.Bits() >= 20 || len(cn.Status.IPAM.Used) == 0) {
			return p.String()
		}
	}
	for _, keys := range []map[string]struct{}{keysOf(cn.Spec.IPAM.Pool), keysOf(cn.Status.IPAM.Used)} {
		for key := range keys {
			if a, err := netip.ParseAddr(key); err == nil && cidr.Contains(a.Unmap()) {
				return key
			}
		}
	}
	return ""
}

func keysOf[V any](m map[string]V) map[string]struct{} {
	out := map[string]struct{}{}
	for key := range m {
		out[key] = struct{}{}
	}
	return out
}
