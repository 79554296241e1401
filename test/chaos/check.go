package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/chaos/claims"
	"github.com/cilium-pool/cilium-pool-operator/test/chaos/etcd"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// verdict is the report of the checker's process.
type verdict struct {
	Stats      invariant.Stats
	Violations []invariant.Violation
	// Handshakes counts addresses that left a pool with their agent's consent.
	Handshakes int
	// GivenBack counts whole blocks that agents removed from their lists.
	GivenBack int
	// Leaders counts how often the Lease changed to another operator.
	Leaders int
	// Evictions are the effects of renumber, in its scenario.
	Evictions evictions
	// Ahead counts block conditions that were seen before their own timestamp.
	Ahead int
}

// versions returns how many versions were judged.
func (v verdict) versions() int {
	n := 0
	for _, count := range v.Stats.Versions {
		n += count
	}
	return n
}

// checker is the process that watches every version of every object. It reads them from etcd:
// an API server that has just started does not know its predecessor's last writes, but etcd
// has them all.
type checker struct {
	rules *invariant.Checker
	// whole checks further rules where agents are assigned whole blocks; nil otherwise.
	whole *whole.Rules
	// held returns the addresses that agents hold.
	held func() map[string][]netip.Addr
	// evicted judges what renumber does; nil in other scenarios.
	evicted *evictionJudge

	mu        sync.Mutex
	verdict   verdict
	sightings []claims.Sighting
}

// newChecker returns a checker that judges what it reads from a store, in a mode and a
// scenario, until ctx ends.
func newChecker(ctx context.Context, store *etcd.Store, m mode, of scenario, held func() map[string][]netip.Addr) (_ *checker, err error) {
	c := &checker{held: held}
	if of.pool != "" {
		c.evicted = newEvictionJudge()
	}
	opts := invariant.Options{Client: store, Cooldown: of.leastCooldown(), OnChange: c.see, Agents: held}
	if carrier, is := m.carrier(); is {
		c.whole, store.Managers = whole.New(carrier), carrier.KnowsWriters()
		opts.Agents, opts.Judges = nil, whole.Judges
	}
	c.rules, err = invariant.Watch(ctx, nil, opts)
	return c, err
}

// runChecker implements the subcommand "check": it serves its findings on a port that it
// prints, until ctx ends. It works in the control plane's folder, as the path of a socket must
// be short.
func runChecker(ctx context.Context, dir, agents string, m mode, run string) error {
	of, err := parseScenario(run)
	if err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	scheme, err := invariant.Scheme()
	if err != nil {
		return err
	}
	sockets, err := filepath.Glob("etcd*-client:0") // of all members
	if err != nil {
		return err
	}
	store := etcd.New(scheme, sockets...)
	c, err := newChecker(ctx, store, m, of, func() map[string][]netip.Addr { return askAgents(ctx, agents) })
	if err != nil {
		return err
	}
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { c.countLeaders(ctx, store) })
	background.Go(func() { c.keepAsking(ctx) })

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: c.routes(), BaseContext: func(net.Listener) context.Context { return ctx }}
	background.Go(func() {
		<-ctx.Done()
		_ = server.Close() // it ends Serve below
	})
	fmt.Println(listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (c *checker) routes() http.Handler {
	mux := http.NewServeMux()
	answer := func(path string, do func(r *http.Request) (any, error)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			value, err := do(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_ = json.NewEncoder(w).Encode(value) // the client may be gone
		})
	}
	answer("/verdict", func(*http.Request) (any, error) { return c.tell(), nil })
	answer("/sync", func(r *http.Request) (any, error) {
		if err := c.rules.Sync(r.Context()); err != nil {
			return nil, err
		}
		return c.tell(), c.askAgents(r.Context())
	})
	answer("/quiet", func(r *http.Request) (any, error) {
		period, err := time.ParseDuration(r.FormValue("for"))
		if err != nil {
			return nil, err
		}
		return c.quiet(r.Context(), period)
	})
	answer("/sightings", func(*http.Request) (any, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Clone(c.sightings), nil
	})
	return mux
}

func (c *checker) tell() verdict {
	stats, violations := c.rules.Stats(), c.rules.Violations()
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.verdict
	v.Stats, v.Violations = stats, violations
	if c.evicted != nil {
		v.Evictions = c.evicted.tell()
	}
	if c.whole != nil {
		v.Violations = append(v.Violations, c.whole.Violations()...)
		v.Stats.AgentChecks, v.GivenBack = c.whole.Asked(), c.whole.Taken()
	}
	return v
}

// see records a version after it was judged.
func (c *checker) see(change invariant.Change) {
	if c.whole != nil {
		c.whole.See(change)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.evicted != nil {
		c.evicted.see(change)
	}
	switch change.Kind {
	case invariant.KindCiliumNode:
		c.verdict.Handshakes += handshakes(change)
	case invariant.KindBlock:
		c.sight(change)
		c.verdict.Ahead += ahead(change)
	}
}

// handshakes counts the addresses that left a pool with their agent's consent.
func handshakes(change invariant.Change) int {
	before, ok := change.Old.(*ciliumv2.CiliumNode)
	now, still := change.New.(*ciliumv2.CiliumNode)
	if !ok || !still {
		return 0
	}
	n := 0
	for addr, state := range before.Status.IPAM.ReleaseIPs {
		_, was := before.Spec.IPAM.Pool[addr]
		_, is := now.Spec.IPAM.Pool[addr]
		if was && !is && string(state) == ipamoption.IPAMReadyForRelease {
			n++
		}
	}
	return n
}

// ahead counts the new conditions of a block whose time is in the future.
func ahead(change invariant.Change) int {
	before, _ := change.Old.(*v1alpha1.PodIPBlock)
	now, is := change.New.(*v1alpha1.PodIPBlock)
	if !is {
		return 0
	}
	n := 0
	for _, condition := range now.Status.Conditions {
		isNew := before == nil || !slices.Contains(before.Status.Conditions, condition)
		if isNew && condition.LastTransitionTime.After(change.Received.Add(time.Second)) {
			n++
		}
	}
	return n
}

// sight records that a block was created or deleted.
func (c *checker) sight(change invariant.Change) {
	before, was := change.Old.(*v1alpha1.PodIPBlock)
	now, is := change.New.(*v1alpha1.PodIPBlock)
	if was && is && before.UID == now.UID {
		return
	}
	if was {
		c.sightings = append(c.sightings, sighting(before, true, change.Received))
	}
	if is {
		c.sightings = append(c.sightings, sighting(now, false, change.Received))
	}
}

func sighting(b *v1alpha1.PodIPBlock, gone bool, seen time.Time) claims.Sighting {
	cidr, _ := netip.ParsePrefix(b.Spec.CIDR) // the CRD admits nothing else
	return claims.Sighting{
		Block: cidr, Node: b.Spec.NodeName, UID: string(b.UID), Gone: gone,
		Created: b.CreationTimestamp.Time, Seen: seen,
	}
}

// countLeaders watches the Lease from its first version.
func (c *checker) countLeaders(ctx context.Context, store *etcd.Store) {
	version, holder := "1", ""
	for ctx.Err() == nil {
		w, err := store.Watch(ctx, &coordinationv1.LeaseList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
		if err != nil {
			_ = harness.Sleep(ctx, time.Second) // etcd is down
			continue
		}
		for e := range w.ResultChan() {
			lease, ok := e.Object.(*coordinationv1.Lease)
			if !ok {
				continue
			}
			version = lease.ResourceVersion
			if now := lease.Spec.HolderIdentity; lease.Name == leaseName && now != nil && *now != "" && *now != holder {
				c.leads(holder)
				holder = *now
			}
		}
		_ = harness.Sleep(ctx, 100*time.Millisecond)
	}
}

// leads counts a change of the leader.
func (c *checker) leads(before string) {
	if before == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verdict.Leaders++
}

// askAgents asks the agents' process which addresses they hold.
func askAgents(ctx context.Context, url string) map[string][]netip.Addr {
	held := map[string][]netip.Addr{}
	if err := get(ctx, url, &held); err != nil {
		return nil
	}
	return held
}

// get decodes a JSON response.
func get(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
