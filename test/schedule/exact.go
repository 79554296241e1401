package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"text/tabwriter"
	"time"

	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	// plentiful is how many times as many blocks exist where addresses are plentiful.
	plentiful = 4
	// holders is the number of nodes that hold idle blocks in the last burst, idleBlocks how
	// many each holds in addition to the one in which its agent has addresses.
	holders, idleBlocks = 4, 6
	// keptFor is longer than a run: no block is reclaimed except for waiting pods.
	keptFor = time.Hour
	// burstTimeout limits one burst of pods.
	burstTimeout = 10 * time.Minute
)

// exactBlocks returns the number of blocks for a number of nodes, and exactPods how many
// addresses for pods these have: 10 nodes with 34 blocks have 1,000.
func exactBlocks(nodes int) int { return 3*nodes + 4 }
func exactPods(nodes int) int   { return usable*exactBlocks(nodes) - agentsOwn*nodes }

// burst is the result of creating pods at once.
type burst struct {
	name            string
	addresses, pods int
	// began is the time since the run began, took the time until all pods ran.
	began, took time.Duration
	// added and failed count CNI ADDs.
	added, failed int64
	handshakes
}

// handshakes describes the blocks that nodes returned.
type handshakes struct {
	blocks int // that became free
	// draining and cooling are how long at least one block drained, or cooled down.
	draining, cooling time.Duration
}

// exact creates as many pods as there are addresses: where addresses are plentiful, where
// there are no more, and where other nodes hold the idle ones.
func (t *trial) exact(ctx context.Context) error {
	n := exactBlocks(t.nodes)
	for round := range t.rounds {
		both := []struct {
			name   string
			blocks int
		}{{plentyName, plentiful * n}, {exactName, n}}
		if round%2 == 1 {
			slices.Reverse(both)
		}
		for _, b := range both {
			zone := fmt.Sprintf("%s-%d", b.name, round+1)
			if err := t.addZone(ctx, zone, t.nodes, b.blocks, unchanged); err != nil {
				return err
			}
			if err := t.burst(ctx, b.name, zone, b.blocks); err != nil {
				return err
			}
		}
	}
	return t.elsewhere(ctx, n)
}

// Names of bursts, which are also the names of their zones.
const plentyName, exactName, elsewhereName = "plentiful", "exact", "elsewhere"

// elsewhere makes other nodes hold all blocks but the first one of each node. Blocks with
// addresses of agents stay: the pool has one more for each holder.
func (t *trial) elsewhere(ctx context.Context, blocks int) error {
	const zone = elsewhereName
	idle := min(holders*idleBlocks, blocks-t.nodes)
	held := t.people.joined
	if err := t.addZone(ctx, zone, holders, holders+idle, unchanged); err != nil {
		return err
	}
	fill := usable*(holders+idle) - agentsOwn*holders
	if _, err := t.fillUp(ctx, zone, fill); err != nil {
		return err
	}
	for i := range holders {
		taint := `{"spec":{"taints":[{"key":"example.com/no-pods","effect":"NoSchedule"}]}}`
		if err := t.people.patchNode(ctx, fmt.Sprintf("node-%d", held+1+i), taint); err != nil {
			return err
		}
	}
	if err := t.people.addBlocks(ctx, zone, blocks-idle); err != nil {
		return err
	}
	if err := t.joinZone(ctx, zone, t.nodes); err != nil {
		return err
	}
	return t.burst(ctx, elsewhereName, zone, blocks)
}

// unchanged leaves a pool's defaults.
func unchanged(*v1alpha1.PodIPPool) {}

// addZone adds nodes, and a pool for them that has at least that many blocks.
func (t *trial) addZone(ctx context.Context, zone string, nodes, blocks int, edit func(*v1alpha1.PodIPPool)) error {
	pool := poolOf(zone, t.people.nextBlocks(blocks))
	pool.Spec.Reclaim.IdleFor = ptr.To(v1alpha1.NewDuration(keptFor))
	edit(pool)
	if err := t.cluster.client.Create(ctx, pool); err != nil {
		return fmt.Errorf("create pool %s: %w", zone, err)
	}
	return t.joinZone(ctx, zone, nodes)
}

// joinZone adds nodes to a zone, and waits until they offer addresses.
func (t *trial) joinZone(ctx context.Context, zone string, nodes int) error {
	ctx, cancel := limited(ctx, startTimeout)
	defer cancel()
	for range nodes {
		if err := t.people.join(ctx, zone); err != nil {
			return err
		}
	}
	if err := t.cluster.fleet.Ready(ctx); err != nil {
		return err
	}
	return t.cluster.awaitOffers(ctx)
}

// nextBlocks returns CIDRs that have n blocks together.
func (p *people) nextBlocks(n int) []netip.Prefix {
	const most = 12 // bits of n
	var cidrs []netip.Prefix
	for i := range most {
		if n&(1<<i) != 0 {
			p.added++
			cidrs = append(cidrs, netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(63 + p.added), 0, 0}), blockBits-i))
		}
	}
	return cidrs
}

func (p *people) addBlocks(ctx context.Context, zone string, n int) error {
	return p.edit(ctx, zone, func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR {
		for _, cidr := range p.nextBlocks(n) {
			cidrs = append(cidrs, v1alpha1.PoolCIDR{CIDR: cidr.String()})
		}
		return cidrs
	})
}

// fillUp runs that many pods in a zone, and deletes them. It returns how long it took until
// all ran.
func (t *trial) fillUp(ctx context.Context, zone string, pods int) (time.Duration, error) {
	ctx, cancel := limited(ctx, burstTimeout)
	defer cancel()
	began := time.Now()
	t.load.in(zone)
	t.load.keep(pods, false)
	err := harness.Until(ctx, 20*time.Millisecond, func(context.Context) error {
		if there, running, _ := t.load.counts(); running < pods {
			return fmt.Errorf("of %d pods %d run", there, running)
		}
		return t.cluster.ended()
	})
	took := time.Since(began)
	if err != nil {
		return took, fmt.Errorf("zone %s: %w", zone, err)
	}
	return took, t.load.empty(ctx)
}

// burst creates pods at once, waits until all run, and deletes them.
func (t *trial) burst(ctx context.Context, name, zone string, blocks int) error {
	fleet := t.cluster.fleet
	b := burst{name: name, addresses: usable*blocks - agentsOwn*t.nodes, pods: exactPods(t.nodes), began: time.Since(t.begin)}
	added, failed := fleet.Added.Load(), fleet.Failed.Load()
	var err error
	b.took, err = t.fillUp(ctx, zone, b.pods)
	b.added, b.failed = fleet.Added.Load()-added, fleet.Failed.Load()-failed
	t.bursts = append(t.bursts, b)
	t.say("%s: %d pods on %d addresses in %.1f s", zone, b.pods, b.addresses, b.took.Seconds())
	return err
}

// count counts the blocks that nodes returned while pods waited.
func (h *handshakes) count(history []change, from, to time.Duration) {
	draining, cooling := map[string]bool{}, map[string]bool{}
	last := from
	until := func(at time.Duration) {
		if d := min(at, to) - last; d > 0 {
			if len(draining) > 0 {
				h.draining += d
			}
			if len(cooling) > 0 {
				h.cooling += d
			}
			last = min(at, to)
		}
	}
	for _, c := range history {
		if c.block == nil {
			continue
		}
		until(c.at)
		if c.gone && c.at > from && c.at <= to {
			h.blocks++
		}
		set(draining, c.name, c.block.drains && !c.gone)
		set(cooling, c.name, c.block.cools && !c.gone)
	}
	until(to)
}

func set(m map[string]bool, key string, there bool) {
	if delete(m, key); there {
		m[key] = true
	}
}

// exactReport contains the results of the bursts.
type exactReport struct {
	bursts []burst
	limit  float64
}

func newExactReport(bursts []burst, history []change, limit float64) *exactReport {
	inOrder(history)
	for i := range bursts {
		b := &bursts[i]
		b.count(history, b.began, b.began+b.took)
	}
	return &exactReport{bursts, limit}
}

// quickest returns the shortest time of the bursts with a name.
func (r *exactReport) quickest(name string) time.Duration {
	var least time.Duration
	for _, b := range r.bursts {
		if b.name == name && (least == 0 || b.took < least) {
			least = b.took
		}
	}
	return least
}

// ratio returns how many times as long pods took with no more addresses than they need.
func (r *exactReport) ratio() float64 {
	plenty := r.quickest(plentyName)
	if plenty == 0 {
		return 0
	}
	return r.quickest(exactName).Seconds() / plenty.Seconds()
}

// findings describes violations.
func (r *exactReport) findings() (found []string) {
	for _, b := range r.bursts {
		if b.failed > 0 {
			found = append(found, fmt.Sprintf("%s: %d CNI ADDs failed", b.name, b.failed))
		}
		if b.name == elsewhereName && b.blocks == 0 {
			found = append(found, "elsewhere: no block was returned")
		}
	}
	if ratio := r.ratio(); ratio > r.limit {
		found = append(found, fmt.Sprintf("pods on as many addresses took %.2f times as long as with plentiful ones; at most %.2f", ratio, r.limit))
	}
	return found
}

func (r *exactReport) print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\naddresses are\tthere are\tpods run\tafter s\ttimes plentiful\tCNI ADDs\tfailed\tblocks returned\tsome drained, %\tsome cooled down, %\t\n")
	plenty := r.quickest(plentyName).Seconds()
	for _, b := range r.bursts {
		share := func(d time.Duration) float64 { return 100 * d.Seconds() / b.took.Seconds() }
		fmt.Fprintf(w, "%s\t%d\t%d\t%.1f\t%.2f\t%d\t%d\t%d\t%.0f\t%.0f\t\n", b.name, b.addresses, b.pods, b.took.Seconds(),
			b.took.Seconds()/plenty, b.added, b.failed, b.blocks, share(b.draining), share(b.cooling))
	}
	_ = w.Flush()
	fmt.Fprintf(to, "as many pods as addresses took %.2f times as long as with plentiful addresses, by the quickest of each; at most %.2f\n", r.ratio(), r.limit)
}
