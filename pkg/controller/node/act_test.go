package node

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// carriesOut runs one step of act for a plan of the node's default pool.
func (b *bed) carriesOut(plan expand.Plan, step func(*observation, *decision, *outcome, *result) error) (*outcome, *result) {
	b.T.Helper()
	b.Watch()
	o := b.observe()
	out := &outcome{}
	result := &result{}
	b.must(step(o, &decision{Share: &o.Shares[0], plan: plan}, out, result))
	b.must(result.failed)
	return out, result
}

// One step changes all blocks that the plan names, and what succeeds keeps no address back.
func TestActsOnEveryBlock(t *testing.T) {
	cidrs := fixtures.Prefixes("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30", "10.0.0.12/30")
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), publishing(bare(), "10.0.0.9"), inService("10.0.0.0/30"), inService("10.0.0.4/30"),
		fixtures.BlockObject("10.0.0.8/30", ipalloc.Draining), fixtures.BlockObject("10.0.0.12/30", ipalloc.Draining))
	phases := func(o *observation, d *decision, out *outcome, result *result) error {
		unwritten, err := b.r.actOnPhases(t.Context(), o, d, out, result)
		if len(unwritten) > 0 {
			t.Errorf("not written are %v", unwritten)
		}
		return err
	}
	blocks := func(o *observation, d *decision, _ *outcome, result *result) error {
		return b.r.actOnBlocks(t.Context(), o, []decision{*d}, result)
	}
	because := expand.CIDRDraining
	out, _ := b.carriesOut(expand.Plan{
		Drain: []expand.Drain{{CIDR: cidrs[0], Reason: because}, {CIDR: cidrs[1], Reason: because}}, Undrain: cidrs[2:],
	}, phases)
	b.hasPhases("drained and put back", "10.0.0.0/30 Draining", "10.0.0.12/30 InService", "10.0.0.4/30 Draining", "10.0.0.8/30 InService")
	if *out != (outcome{}) {
		t.Errorf("the outcome is %+v", out)
	}
	b.carriesOut(expand.Plan{CoolDown: []expand.CoolDown{{CIDR: cidrs[0], Reason: because}, {CIDR: cidrs[1], Reason: because}}}, blocks)
	b.hasPhases("returned", "10.0.0.0/30 CoolingDown", "10.0.0.12/30 InService", "10.0.0.4/30 CoolingDown", "10.0.0.8/30 InService")
	b.carriesOut(expand.Plan{CoolDown: []expand.CoolDown{{CIDR: cidrs[2], Reason: because}}, Delete: cidrs[:2]}, blocks)
	b.hasPhases("freed, and another one returned", "10.0.0.12/30 InService", "10.0.0.8/30 CoolingDown")

	agent := expand.Closed{Agent: "c", Since: fixtures.Noon(), Inferred: true}
	b.carriesOut(expand.Plan{RecordClosed: []expand.ClosedRecord{{CIDR: cidrs[2], Closed: agent}, {CIDR: cidrs[3], Closed: agent}}}, phases)
	for _, cidr := range cidrs[2:] {
		if is := b.block(cidr.String()).Closed; is.Agent != "c" || !is.Inferred {
			t.Errorf("block %s is closed by %q, inferred: %t", cidr, is.Agent, is.Inferred)
		}
	}
}

// A mark and a withdrawal are one write, and what stands already is none. Steps that were carried
// out are counted.
func TestHandshakeIsCounted(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2"), inService("10.0.0.0/30"))
	b.agentWrites(`{"status":{"ipam":{"release-ips":{"10.0.0.2":"marked-for-release"}}}}`)
	for _, write := range []string{"first", "again"} {
		b.carriesOut(expand.Plan{Mark: fixtures.Addrs("10.0.0.1"), Clear: fixtures.Addrs("10.0.0.2")}, func(o *observation, d *decision, _ *outcome, _ *result) error {
			_, err := b.r.actOnHandshake(t.Context(), o, []decision{*d})
			return err
		})
		want := map[string]float64{"cilium_pool_address_steps_total mark": 1, "cilium_pool_address_steps_total clear": 1}
		if diff := cmp.Diff(want, fakeapi.Series(t, b.r.Metrics.steps)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", write, diff)
		}
	}
	if is := b.CiliumNode().Release; len(is) != 1 || is[fixtures.Addrs("10.0.0.1")[0]] != expand.Marked {
		t.Errorf("release entries are %v", is)
	}
}

// A claim creates as many blocks as its addresses need, and counts the addresses that it did not get.
func TestClaimsWhatIsWanted(t *testing.T) {
	for name, test := range map[string]struct {
		addresses, short int
		want             []string
	}{
		"as many as two blocks have": {4, 0, []string{"10.0.0.0/30 InService", "10.0.0.4/30 InService"}},
		"more than the pool has":     {9, 5, []string{"10.0.0.0/30 InService", "10.0.0.4/30 InService"}},
		"one address":                {1, 0, []string{"10.0.0.0/30 InService"}},
		"as many as one block has":   {2, 0, []string{"10.0.0.0/30 InService"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/29"), bare())
			out, _ := b.carriesOut(expand.Plan{Claim: expand.Claim{Addresses: test.addresses, Blocks: 9, Room: 99}}, func(o *observation, d *decision, out *outcome, result *result) error {
				return b.r.claim(t.Context(), o, d, out, &ciliumnode.Change{}, result)
			})
			b.hasPhases("claimed", test.want...)
			if out.Exhausted != test.short {
				t.Errorf("it fell short of %d addresses, want %d", out.Exhausted, test.short)
			}
		})
	}
}

// Addresses that all may be published leave nothing to wait for.
func TestPublishesAll(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), bare(), inService("10.0.0.0/30"))
	_, result := b.carriesOut(expand.Plan{Publish: fixtures.Addrs("10.0.0.1", "10.0.0.2")}, func(o *observation, d *decision, out *outcome, result *result) error {
		change := &ciliumnode.Change{}
		err := b.r.addVerified(t.Context(), o, d, out, change, result)
		if len(change.Publish) != 2 {
			t.Errorf("ready are %v", change.Publish)
		}
		return err
	})
	if result.pollFor != "" {
		t.Errorf("it polls, as %s", result.pollFor)
	}
}

func TestFails(t *testing.T) {
	out := outcome{Shortfall: expand.Shortfall{Unwritten: 1}}
	err := errors.New("refused")
	out.fails(err, 2, 4)
	if want := (outcome{Shortfall: expand.Shortfall{Unwritten: 7, Unpublished: 2}, err: err}); out != want {
		t.Errorf("the outcome is %+v, want %+v", out, want)
	}
}

// Addresses of pods are neither marked nor removed, and their marks are withdrawn. While a pod is
// not shown yet, no address is marked.
func TestKeepsAddressesOfPods(t *testing.T) {
	addrs := fixtures.Addrs("10.0.0.1", "10.0.0.2", "10.0.0.3")
	for name, test := range map[string]struct {
		used                string
		unseen, any         bool
		mark, remove, clear int
	}{
		"none is in use":         {used: "10.0.0.9", mark: 1, remove: 1},
		"an address to mark":     {used: "10.0.0.1", any: true, remove: 1},
		"an address to remove":   {used: "10.0.0.2", any: true, mark: 1},
		"a marked address":       {used: "10.0.0.3", any: true, mark: 1, remove: 1, clear: 1},
		"a pod is not shown yet": {used: "10.0.0.9", unseen: true, any: true, remove: 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := decision{
				Share: &state.Share{State: expand.State{Release: map[netip.Addr]expand.ReleaseStatus{addrs[2]: expand.Marked}}},
				plan:  expand.Plan{Mark: addrs[:1], Remove: addrs[1:2]},
			}
			plan, differs := keepUsed(d, map[netip.Addr]bool{fixtures.Addrs(test.used)[0]: true}, test.unseen)
			if differs != test.any || len(plan.Mark) != test.mark || len(plan.Remove) != test.remove || len(plan.Clear) != test.clear {
				t.Errorf("any: %t, marks %v, removes %v, clears %v", differs, plan.Mark, plan.Remove, plan.Clear)
			}
			if d.plan.Mark[0] != addrs[0] || d.plan.Remove[0] != addrs[1] || len(d.plan.Clear) > 0 {
				t.Errorf("the plan of the decision is changed: %s", d.plan)
			}
		})
	}
}

// Nothing is read live of a block that the cache has as it was observed.
func TestObjectComesFromTheCache(t *testing.T) {
	b := newBed(t, inService("10.0.0.0/30"))
	b.Watch()
	known := b.block("10.0.0.0/30")
	b.Calls = nil
	if obj, err := b.r.Blocks.object(t.Context(), known); err != nil || obj.Name != known.Name || len(b.Calls) > 0 {
		t.Errorf("%v, %v, calls %v", obj, err, b.Calls)
	}
}

// A pool is left for the next one after the API server has refused two blocks of it.
func TestRefusedPoolIsLeft(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.PodIPPool("q", 2, "10.9.0.0/28"), bare())
	b.Refuse = map[string]error{"create 10.0.0.0-30": errDenied, "create 10.0.0.4-30": errDenied, "create 10.0.0.8-30": errDenied}
	b.Watch()
	block, pool, err := b.r.Blocks.claimAny(t.Context(), b.node(), ipalloc.IPv4, "", []*crd.Pool{b.Pools.Get("p"), b.Pools.Get("q")}, false)
	creates := strings.Count(strings.Join(b.Calls, "\n"), "create PodIPBlock")
	if err != nil || pool.Name != "q" || block.CIDR != fixtures.Prefix("10.9.0.0/30") || creates != 3 {
		t.Errorf("block %s of %v, %v, by %d tries; want one of q by three: calls %v", block.CIDR, pool, err, creates, b.Calls)
	}
}

// Nothing is remembered of a node that is gone, however the operator runs.
func TestForgetsANodeThatIsGone(t *testing.T) {
	for name, runs := range map[string]func(*Reconciler){
		"as usual": func(*Reconciler) {}, "paused": func(r *Reconciler) { r.Cluster.Paused = true }, "in shadow": func(r *Reconciler) { r.Shadow = true },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, fixtures.Node(), bare())
			runs(b.r)
			b.step()
			if len(b.r.memories.nodes) != 1 {
				t.Fatal("nothing is remembered of a node that is there")
			}
			b.must(errors.Join(b.API.Delete(t.Context(), fixtures.Node()), b.API.Delete(t.Context(), bare())))
			b.step()
			if len(b.r.memories.nodes) > 0 {
				t.Error("it is remembered")
			}
		})
	}
}

// A parked block is remembered with the Cilium pool that it is of.
func TestParkedIsRemembered(t *testing.T) {
	of := func(pool, cidr string) state.Share {
		return state.Share{CiliumPool: pool, State: expand.State{Blocks: []expand.Block{{CIDR: fixtures.Prefix(cidr)}}}}
	}
	o := &observation{Snapshot: &state.Snapshot{Shares: []state.Share{of("", "10.0.0.0/30"), of("blue", "10.8.0.0/30")}}, memory: &nodeMemory{}}
	o.noteParked(fixtures.Prefix("10.8.0.0/30"), expand.Parking{Agent: "c"})
	if other, its := o.memory.forShare(o, &o.Shares[0]).Parked, o.memory.forShare(o, &o.Shares[1]).Parked; len(other) != 0 || len(its) != 1 {
		t.Errorf("of the default pool %v, of blue %v", other, its)
	}
}

func TestBackoff(t *testing.T) {
	n := &nodeMemory{}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600} {
		if got := n.nextBackoff(); got != want*common.ConflictRetry {
			t.Errorf("wait %d is %s", i, got)
		}
	}
}

// A failure lasts once writes have failed for as long as the longest wait.
func TestFailureLasts(t *testing.T) {
	n, err := &nodeMemory{}, errors.New("no answer")
	for after, want := range map[time.Duration]bool{common.MaxBackoff - 1: false, common.MaxBackoff: true} {
		n.failing = fixtures.Noon()
		if got := n.noteFailure(err, fixtures.Noon().Add(after)); got != want {
			t.Errorf("after %s it lasts: %t", after, got)
		}
	}
	if n.failing = (time.Time{}); n.noteFailure(err, fixtures.Noon()) {
		t.Error("the first failure lasts")
	}
}

// An event about a block names its reason and, where the pool that comes first has no block, that.
// That of a Node which is gone is about its name.
func TestEventsOfBlocks(t *testing.T) {
	p, q := fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28")), fixtures.Block("10.9.0.0/30", "q", "n", 1)
	plan := &decision{Share: &state.Share{Pools: []*crd.Pool{p}}, plan: expand.Plan{Claim: expand.Claim{Addresses: 3}}}
	here, gone := &observation{Snapshot: &state.Snapshot{Name: "n", Node: fixtures.Node()}}, &observation{Snapshot: &state.Snapshot{Name: "n"}}
	of := fixtures.Block("10.0.0.0/30", "p", "n", 1)
	for name, test := range map[string]struct {
		send func(*Reporter)
		kind string
		want string
	}{
		"that is pinned": {func(r *Reporter) {
			r.Ledger.Pins.Set(crd.Pin{CIDR: of.CIDR, Node: of.Node})
			r.sendClaimed(here, plan, of)
		}, event.ReasonBlockClaimed, "block 10.0.0.0/30 of pool p on node n: claimed, as it is pinned to the node"},
		"of the first pool":   {func(r *Reporter) { r.sendClaimed(here, plan, of) }, event.ReasonBlockClaimed, "block 10.0.0.0/30 of pool p on node n: claimed, as the node wants 3 more addresses"},
		"of another pool":     {func(r *Reporter) { r.sendClaimed(here, plan, q) }, event.ReasonBlockClaimed, "more addresses; pool p, which comes first, has no block for it"},
		"a drain":             {func(r *Reporter) { r.sendPhase(here, of, ipalloc.Draining, expand.CIDRDraining, "x") }, event.ReasonBlockDraining, ": " + string(expand.CIDRDraining) + ": x"},
		"back in service":     {func(r *Reporter) { r.sendPhase(here, of, ipalloc.InService, expand.None, "x") }, event.ReasonBlockBackInService, "on node n: x"},
		"of a Node that went": {func(r *Reporter) { r.sendPhase(gone, of, ipalloc.CoolingDown, expand.NodeGone, "x") }, event.ReasonBlockCoolingDown, ": x"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			test.send(b.r.Reporter)
			if got := b.EventsOf(test.kind); len(got) != 1 || !strings.HasSuffix(got[0], test.want) {
				t.Errorf("events %q, want one that ends in %q", got, test.want)
			}
		})
	}
}

// Plans and observations answer these questions without a cluster.
func TestObservationSays(t *testing.T) {
	view := func(a ciliumnode.Addresses) *observation {
		return &observation{Snapshot: &state.Snapshot{CiliumNode: &ciliumnode.View{Addresses: &a}}}
	}
	unread := view(ciliumnode.Addresses{})
	unread.CiliumNode.BadFields = []ciliumnode.BadField{{Path: "spec.ipam.podCIDRs[0]", Text: `"x"`}}
	listed, unlisted := expand.Block{CIDR: fixtures.Prefix("10.0.0.0/30"), Size: 1, Listed: true}, expand.Block{Size: 1}
	whole := expand.State{BlockAssignment: &expand.BlockAssignment{}, Blocks: []expand.Block{listed, unlisted}}.AsPublished()
	sixth := &observation{Snapshot: &state.Snapshot{Shares: []state.Share{{Family: ipalloc.IPv6}}}}
	foreign := view(ciliumnode.Addresses{Pool: map[netip.Addr]string{fixtures.Addrs("10.0.0.1")[0]: ""}, NonCanonical: fixtures.Addrs("::ffff:10.0.0.1")})
	unserved := view(ciliumnode.Addresses{})
	unserved.Shares = []state.Share{{}, {Family: ipalloc.IPv6}}
	supplied := func(exhausted int, s expand.State) account {
		return newAccount(&state.Share{State: s}, expand.Plan{}, outcome{Shortfall: expand.Shortfall{Exhausted: exhausted}})
	}
	for name, is := range map[string]bool{
		"a node with a block does not lack its first":      !supplied(1, expand.State{Blocks: []expand.Block{listed}}).lacksFirstBlock(),
		"a node that has all it wants lacks none":          !supplied(0, expand.State{}).lacksFirstBlock(),
		"a node without one lacks its first":               supplied(1, expand.State{}).lacksFirstBlock(),
		"blocks whole: listed ones are usable, others not": whole.Blocks[0].Size == 1 && whole.Blocks[1].Size == 0,
		"a report is asked for in the family of the node":  sixth.probeAddress(&ciliumnode.View{}).Is6(),
		"no pool, and no address: pods wait":               view(ciliumnode.Addresses{}).shortageOfUnselected(nil).podsWait,
		"no pool, and addresses of another IPAM":           !foreign.shortageOfUnselected(nil).podsWait,
		"families that no pool has are not missed":         unserved.familyDisabledText() == "",
		"nothing differs":                                  difference{}.String() == "",
		"something differs":                                strings.HasPrefix(difference{claim: 1}.String(), "adopt 0, claim 1"),
		"a CiliumNode that can be read":                    view(ciliumnode.Addresses{}).unreadableText() == "",
		"one that cannot":                                  strings.Contains(unread.unreadableText(), "spec.ipam.podCIDRs[0]"),
	} {
		if !is {
			t.Errorf("%s: it is not so", name)
		}
	}
}
