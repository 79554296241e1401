package truth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/truth/wire"
)

// patience limits each wait. Only a wrong answer waits that long.
const patience = time.Minute

// pair is a node with Cilium's allocator and a node with the light one.
type pair struct {
	t          *testing.T
	c          client.WithWatch
	hub        *agent.Hub
	kubeconfig string
	name       string

	real  *real
	light *light
	shut  bool // the gates are not open
	log   []string
}

func newPair(t *testing.T, cluster *controlplane.Cluster) *pair {
	c, err := harness.NewClient(cluster.Config())
	harness.Must(t, err)
	p := &pair{
		t: t, c: c, hub: agent.NewHub(c),
		kubeconfig: filepath.Join(cluster.Dir(), "kubeconfig"),
		name:       harness.UniqueName(t),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var hub sync.WaitGroup
	hub.Go(func() { p.hub.Run(ctx) })
	t.Cleanup(func() { cancel(); hub.Wait() })
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("steps:\n%s", strings.Join(p.log, "\n"))
		}
	})
	return p
}

func (p *pair) realNode() string  { return p.name + "-real" }
func (p *pair) lightNode() string { return p.name + "-light" }

func (p *pair) note(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf("%3d  ", len(p.log))+fmt.Sprintf(format, args...))
}

// start starts both agents; they open their allocators when the pool
// suffices.
func (p *pair) start() {
	p.real = startReal(p.t, wire.CRD, "--kubeconfig", p.kubeconfig, "--node", p.realNode(),
		"--rate", updateRate.String(), "--poll", "100ms")
	p.light = startLight(p.t, p.c, p.hub, p.lightNode())
	p.shut = false
}

// open waits until both have their allocators. The pool must suffice.
func (p *pair) open() {
	p.t.Helper()
	p.settle()
	p.eventually("both have a pool", func() string {
		if !p.light.Store.MinimumReached() {
			return "the light one has no pool"
		}
		if !p.real.readState().Ready {
			return "Cilium's has no pool"
		}
		return ""
	})
	p.light.Store.Open()
}

// crash ends both agents.
func (p *pair) crash() {
	p.real.kill()
	p.light.stop()
}

func (p *pair) create(pool map[string]string) {
	p.t.Helper()
	for _, name := range []string{p.realNode(), p.lightNode()} {
		cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		harness.Must(p.t, p.c.Create(p.t.Context(), cn))
	}
	p.patch(false, `{"spec":{"ipam":{"pool":%s}}}`, poolJSON(pool))
}

func (p *pair) remove() {
	p.t.Helper()
	for _, name := range []string{p.realNode(), p.lightNode()} {
		cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		harness.Must(p.t, p.c.Delete(p.t.Context(), cn))
	}
}

// patch applies one merge patch to both CiliumNodes.
func (p *pair) patch(status bool, format string, args ...any) {
	p.t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
	for _, name := range []string{p.realNode(), p.lightNode()} {
		cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		var err error
		if status {
			err = p.c.Status().Patch(p.t.Context(), cn, patch)
		} else {
			err = p.c.Patch(p.t.Context(), cn, patch)
		}
		if err != nil {
			p.t.Fatalf("patch %s: %v", name, err)
		}
	}
}

func (p *pair) get(name string) *ciliumv2.CiliumNode {
	p.t.Helper()
	cn := &ciliumv2.CiliumNode{}
	err := p.c.Get(p.t.Context(), types.NamespacedName{Name: name}, cn)
	if client.IgnoreNotFound(err) != nil {
		p.t.Fatal(err)
	}
	return cn
}

// setGate closes ("block", "fail") or opens ("open") both gates.
func (p *pair) setGate(mode string) {
	p.real.call(wire.Request{Do: "gate", Gate: mode})
	p.light.gate.Set(mode)
	p.shut = mode != "open"
}

// settle waits until both agents have processed everything and have written the same to the
// API server.
func (p *pair) settle() {
	p.t.Helper()
	p.eventually("both say the same", p.differ)
}

// rest waits until both are settled and neither has a write left to do. Cilium does not report
// that: it counts as done after a few turns without a write.
func (p *pair) rest() {
	p.t.Helper()
	p.settle()
	attempts, since := 0, time.Now()
	p.eventually("Cilium's rests", func() string {
		if now := p.real.readState().Attempts; now != attempts {
			attempts, since = now, time.Now()
		}
		if time.Since(since) < 4*updateRate {
			return fmt.Sprintf("%d writes", attempts)
		}
		return ""
	})
	p.settle()
}

// differ describes the remaining difference, or returns "".
func (p *pair) differ() string {
	realCN, lightCN := p.get(p.realNode()), p.get(p.lightNode())
	seen := p.real.readState()
	switch {
	case seen.Seen != realCN.ResourceVersion:
		return fmt.Sprintf("Cilium's has seen %q of %q", seen.Seen, realCN.ResourceVersion)
	case p.light.Store.Seen() != lightCN.ResourceVersion:
		return fmt.Sprintf("the light one has seen %q of %q", p.light.Store.Seen(), lightCN.ResourceVersion)
	case p.light.Idle():
	case !p.shut:
		return "the light one has not written yet"
	case seen.Attempts == 0 || p.light.gate.Attempts() == 0:
		return fmt.Sprintf("attempts at the gate: %d and %d", seen.Attempts, p.light.gate.Attempts())
	}
	// A patch may leave an empty map. The next write of an agent drops it, even a write without
	// another change, and Cilium's may have one more of these to do than the light one.
	return cmp.Diff(realCN.Status, lightCN.Status, cmpopts.IgnoreUnexported(ciliumv2.NodeStatus{}), cmpopts.EquateEmpty())
}

// eventually waits until missing returns "".
func (p *pair) eventually(what string, missing func() string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	err := harness.Until(ctx, 5*time.Millisecond, func(context.Context) error {
		if why := missing(); why != "" {
			return errors.New(why)
		}
		return nil
	})
	if err != nil {
		p.t.Fatalf("never: %s (-Cilium's +light):\n%v", what, err)
	}
}

// compare compares one answer of the light one with Cilium's.
func (p *pair) compare(what string, want, got error) {
	p.t.Helper()
	p.note("%s: %v", what, want)
	if want == nil && got != nil || !errors.Is(got, want) {
		p.t.Fatalf("%s: the light one says %v, Cilium's %v", what, got, want)
	}
}

// compareAllocated compares the allocated addresses of both.
func (p *pair) compareAllocated() {
	p.t.Helper()
	got := map[netip.Addr]bool{}
	for addr := range p.light.Store.Allocated() {
		got[addr] = true
	}
	if diff := cmp.Diff(p.real.allocated(), got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		p.t.Fatalf("allocated (-Cilium's +light):\n%s", diff)
	}
}

// took calls allocate on Cilium, and passes the result to the light one.
func (p *pair) took(allocate func() (v4, v6 netip.Addr, err error)) (v4, v6 netip.Addr, err error) {
	before := p.real.allocated()
	v4, v6, err = allocate()
	after := p.real.allocated()
	p.light.hint = hint{
		// An address that it reports as taken may not be new: it may already be allocated, by its
		// owner or in another spelling.
		took: append(difference(after, before), v4, v6), lost: difference(before, after),
		had: before, badKey: errors.Is(err, agent.ErrBadKey),
	}
	return v4, v6, err
}

func difference(addrs, excluded map[netip.Addr]bool) []netip.Addr {
	return slices.DeleteFunc(slices.Collect(maps.Keys(addrs)), func(addr netip.Addr) bool { return excluded[addr] })
}

// next runs a CNI ADD on both.
func (p *pair) next(owner string) {
	p.t.Helper()
	v4, v6, want := p.took(func() (netip.Addr, netip.Addr, error) { return p.real.next(owner, "") })
	gotV4, gotV6, got := p.light.Store.AllocateNext(owner)
	p.compare("next "+owner, want, got)
	if gotV4 != v4 || gotV6 != v6 {
		p.t.Fatalf("next %s: the light one gives %s and %s, Cilium's %s and %s", owner, gotV4, gotV6, v4, v6)
	}
}

// infra allocates the router's address on both.
func (p *pair) infra(family agent.Family, owner string) {
	p.t.Helper()
	_, _, want := p.took(func() (netip.Addr, netip.Addr, error) { return p.real.next(owner, family) })
	_, got := p.light.Store.AllocateNextWithoutSync(family, owner)
	p.compare(fmt.Sprintf("infra %s %s", family, owner), want, got)
}

func (p *pair) allocate(addr netip.Addr, owner string) {
	p.t.Helper()
	p.compare(fmt.Sprintf("allocate %s %s", addr, owner), p.real.ask("allocate", addr, owner), p.light.Store.Allocate(addr, owner))
}

// restore reports whether the pod has its address back.
func (p *pair) restore(addr netip.Addr, owner string) bool {
	p.t.Helper()
	want := p.real.ask("restore", addr, owner)
	p.compare(fmt.Sprintf("restore %s %s", addr, owner), want, p.light.Store.Restore(addr, owner))
	return want == nil
}

func (p *pair) release(addr netip.Addr) {
	p.t.Helper()
	p.light.Store.Release(addr)
	p.compare("release "+addr.String(), p.real.ask("release", addr, ""), nil)
}

func (p *pair) exclude(addr netip.Addr) {
	p.t.Helper()
	p.light.Store.Exclude(addr)
	p.compare("exclude "+addr.String(), p.real.ask("exclude", addr, ""), nil)
}

func (p *pair) restored() {
	p.note("restore finished")
	p.real.call(wire.Request{Do: "restored"})
	p.light.RestoreFinished()
}

// poolJSON formats a pool, which maps keys to owners.
func poolJSON(pool map[string]string) string {
	var entries []string
	for _, key := range slices.Sorted(maps.Keys(pool)) {
		entries = append(entries, fmt.Sprintf(`%q:{"owner":%q,"resource":"r"}`, key, pool[key]))
	}
	return "{" + strings.Join(entries, ",") + "}"
}
