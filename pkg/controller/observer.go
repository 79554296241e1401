package controller

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

const (
	// observeEvery is the least time between two counts of the cluster, and observeFactor keeps them
	// from taking more than a tenth of a processor.
	observeEvery, observeFactor = 10 * time.Second, 10
	// observeRetry is the time until it tries again to tell what assigns addresses.
	observeRetry = 30 * time.Second
)

// Observer counts the addresses that another IPAM assigns, in the operator's metrics. It writes
// nothing.
type Observer struct {
	config   *rest.Config
	client   client.Client
	settings config.Settings
	metrics  allMetrics
	// pools and nodes have series.
	pools map[string]bool
	nodes map[string]bool
}

// SetupObserver adds an observer to a manager, and no controller.
func SetupObserver(mgr manager.Manager, s config.Settings) error {
	metrics, err := newAllMetrics(s.Registry)
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	metrics.own.build.WithLabelValues(s.Version, s.Commit, runtime.Version()).Set(1)
	live, err := apiclient.NewLiveClient(mgr)
	if err != nil {
		return err
	}
	return mgr.Add(&Observer{config: mgr.GetConfig(), client: live, settings: s, metrics: metrics})
}

// Start observes until ctx ends. While it cannot tell what assigns addresses, it shows none.
func (o *Observer) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("observer")
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := o.observe(ctx); ctx.Err() == nil {
			logger.Error(err, "observing nothing; trying again")
			o.metrics.own.missing.Set(1)
			o.show(nil)
		}
	}, observeRetry)
	return nil
}

// observe returns once it cannot go on.
func (o *Observer) observe(ctx context.Context) error {
	found, err := ciliumconfig.Read(ctx, o.client, o.settings.AgentNamespace, nil)
	if err != nil {
		return err
	}
	operator := clusterread.Operator{Settings: o.settings, Observe: true}
	if operator.Mode, err = clusterread.ModeOf(found, o.settings.AgentNamespace); err != nil {
		return err
	}
	operator.Settings.Mode = operator.Mode
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	followed, err := clusterview.Follow(ctx, o.config, o.client, operator, o.settings.AgentNamespace, o.settings.AgentSelector)
	if err != nil {
		return err
	}
	log.FromContext(ctx).WithName("observer").Info("observing", "mode", operator.Mode)
	for {
		began := time.Now()
		c, err := followed.Cluster(ctx)
		if err != nil {
			return err
		}
		o.metrics.own.missing.Set(0)
		o.show(c)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(observeEvery, observeFactor*time.Since(began))):
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-followed.Failed:
			return followed.Unreadable(err)
		case <-followed.Changed:
		}
	}
}

// show sets the series of a cluster, and drops the series of pools and nodes that are gone; nil drops all.
func (o *Observer) show(c *clusterview.Cluster) {
	pools := map[string]bool{}
	nodes := map[string]bool{}
	if c != nil {
		used := map[string][2]int64{}
		for _, name := range c.NodeNames() {
			nodes[name] = true
			o.showNode(c, name, used)
		}
		for _, name := range c.State.Pools.Names() {
			pools[name] = true
			o.showPool(c, name, used[name])
		}
	}
	for name := range o.pools {
		if !pools[name] {
			o.metrics.pool.Forget(name)
		}
	}
	for name := range o.nodes {
		if !nodes[name] {
			for _, f := range ipalloc.Families() {
				o.metrics.node.Forget(name, f)
			}
		}
	}
	o.pools = pools
	o.nodes = nodes
}

// showNode sets the series of a node, and adds its used addresses to used, by pool.
func (o *Observer) showNode(c *clusterview.Cluster, name string, used map[string][2]int64) {
	var capacity [2]int
	users := c.Users(name)
	for _, b := range c.State.Ledger.NodeBlocks(name) {
		f := ipalloc.FamilyOf(b.CIDR.Addr())
		capacity[f] += c.UsableCount(b)
		n := used[b.Pool]
		n[f] += int64(clusterview.CountIn(b.CIDR, users))
		used[b.Pool] = n
	}
	var demand [2]int
	for a := range users {
		demand[ipalloc.FamilyOf(a)]++
	}
	for _, f := range ipalloc.Families() {
		if capacity[f]+demand[f] > 0 {
			o.metrics.node.Show(name, f, demand[f], capacity[f])
		} else {
			o.metrics.node.Forget(name, f)
		}
	}
}

func (o *Observer) showPool(c *clusterview.Cluster, name string, used [2]int64) {
	pool := c.State.Pools.Get(name)
	if pool.Frozen() { // with figures of its last readable version
		o.metrics.pool.Forget(name)
	}
	usage := state.UsageOf(pool, c.State.Ledger.PoolBlocks(name), c.State.Ledger.Free)
	for i := range usage.Families {
		f := &usage.Families[i]
		f.Status.Addresses.Used = &used[f.Family]
	}
	usage.Selected = pool.CountSelected(c.Objects.Nodes)
	o.metrics.pool.Show(name, pool, !pool.Frozen(), &usage)
	o.metrics.pool.ShowRoom(pool, usage.Families)
}
