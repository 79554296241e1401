package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/fleet"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// settings are the settings of a run.
type settings struct {
	// binDir holds etcd, kube-apiserver and the operator.
	binDir string
	// older is the operator's program of an earlier version; only the scenario versions has one.
	older    string
	nodes    int
	duration time.Duration // of the faults
	seed     uint64
	mode     mode
	scenario scenario
	// small makes a run with little load, only the first faults of the scenario and a short
	// rest at the end, which need not achieve as much.
	small bool
}

// chaos is one run.
type chaos struct {
	settings
	dir      string // for its state and logs
	say      func(format string, args ...any)
	cluster  *controlplane.Cluster
	client   client.WithWatch
	fleet    *fleet.Fleet
	load     *load
	network  *network
	operator []*operator
	checker  *checker
	begin    time.Time

	mu     sync.Mutex
	phase  string
	faults map[fault]int
}

// run makes one run. It returns the report of a failed run, too.
func run(ctx context.Context, s settings, dir string, say func(string, ...any)) (_ *report, err error) {
	c := &chaos{settings: s, dir: dir, say: say, begin: time.Now(), faults: map[fault]int{}}
	ctx, fail := context.WithCancelCause(ctx)
	var parts sync.WaitGroup
	defer func() {
		fail(nil)
		parts.Wait()
		for _, o := range c.operator {
			if o.link != nil {
				err = errors.Join(err, o.link.Close())
			}
		}
		if c.cluster != nil {
			err = errors.Join(err, c.cluster.Stop())
		}
	}()
	if err := c.build(ctx); err != nil {
		return nil, err
	}
	background := func(what string, do func(context.Context) error) {
		parts.Go(func() {
			if err := do(ctx); err != nil {
				fail(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	background("agents", func(ctx context.Context) error { c.fleet.Run(ctx); return nil })
	uncached, err := c.cluster.StartUncached(ctx)
	if err != nil {
		return nil, err
	}
	if c.checker, err = startChecker(ctx, uncached, c.mode, c.fleet.Held); err != nil {
		return nil, err
	}
	for _, o := range c.operator {
		background(o.name, o.supervise)
	}
	background("rules", c.watchVerdict)
	err = c.story(ctx)
	return c.tell(), cmp.Or(context.Cause(ctx), err)
}

// story performs the steps of a run, in this order.
func (c *chaos) story(ctx context.Context) error {
	act := c.storm
	if c.scenario.faults == nil {
		act = c.soak
	}
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"join", c.join}, {"faults", act}, {"settle", c.settle}, {"enough", c.enough},
	} {
		c.mu.Lock()
		c.phase = part.name
		c.mu.Unlock()
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

func (c *chaos) build(ctx context.Context) (err error) {
	if err := os.RemoveAll(c.dir); err != nil {
		return err
	}
	crds, err := c.definitions()
	if err != nil {
		return err
	}
	c.cluster, err = controlplane.Start(ctx, controlplane.Options{Dir: c.dir, BinDir: c.binDir, CRDs: crds})
	if err != nil {
		return err
	}
	if c.client, err = newClient(c.cluster.Config()); err != nil {
		return err
	}
	agents := c.cluster.Config()
	agents.UserAgent = whole.AgentWriter // the writer in managedFields
	agentClient, err := harness.NewClient(agents)
	if err != nil {
		return err
	}
	c.fleet = fleet.New(agentClient, fleet.Options{Seed: c.seed, Retry: time.Second, Agent: agent.Options{
		IPAM: agent.IPAM(c.mode), PreAllocate: map[string]int{crd.DefaultCiliumPool: preAllocate}, Health: true,
		UpdateRate: updateRate, PollInterval: time.Second, CrashBackoff: 2 * time.Second,
	}})
	c.load = newLoad(c.client, c.settings)
	c.network = newNetwork(c.client, c.settings)
	for _, name := range []string{"operator-a", "operator-b"} {
		o, err := newOperator(ctx, c.cluster, c.client, c.settings, name)
		if err != nil {
			return err
		}
		c.operator = append(c.operator, o)
	}
	return nil
}

// updateRate is the interval of agents' reports; real agents take 15 s. It is short so that a
// minute sees many handshakes.
const updateRate = time.Second

// requestTimeout keeps the injectors of faults from waiting for an API server that was
// stopped.
const requestTimeout = 10 * time.Second

func newClient(cfg *rest.Config) (client.WithWatch, error) {
	cfg.Timeout = requestTimeout
	return harness.NewClient(cfg)
}

// errBroken means that a rule was broken.
var errBroken = errors.New("a rule is broken")

// watchVerdict prints the progress, and ends the run when a rule was broken.
func (c *chaos) watchVerdict(ctx context.Context) error {
	const every = 5 * time.Second
	for harness.Sleep(ctx, every) == nil {
		v := c.checker.tell()
		c.progress(v)
		if err := judge(v); err != nil {
			return err
		}
	}
	return nil
}

func judge(v verdict) error {
	var err error
	for _, violation := range v.violations {
		err = errors.Join(err, fmt.Errorf("%w: %s", errBroken, violation))
	}
	if v.stats.Gaps > 0 {
		err = errors.Join(err, fmt.Errorf("the checker missed versions, %d times", v.stats.Gaps))
	}
	return err
}

// until waits until holds returns nil, and returns its last error if that takes too
// long.
func until(ctx context.Context, patience time.Duration, holds func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %s", patience))
	defer cancel()
	return harness.Until(ctx, 300*time.Millisecond, holds)
}
