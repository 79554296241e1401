package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/chaos/claims"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/fleet"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// settings are the settings of a run.
type settings struct {
	// BinDir holds etcd, kube-apiserver and the operator.
	BinDir string
	Nodes  int
	Faults time.Duration
	Seed   uint64
	Mode   mode
	// Run is the name of the scenario; empty: the default one.
	Run string
	// Only is the one fault of the scenario that is injected; empty: all.
	Only fault
	// Small makes a run with little load and only the first faults of the scenario, which need
	// not achieve as much.
	Small bool
	// Rest is how long nothing may be written at the end. 0: restFor.
	Rest time.Duration
	// Skew is how far clocks differ, in scenarios in which they do. 0: skew.
	Skew time.Duration
	// Overlay is a file that is passed to go build as -overlay when it builds the operators of
	// this checkout with planted faults, of which MUTANT=Mutant selects one. Empty: use the
	// operators in BinDir, without faults.
	Overlay, Mutant string
}

// scenario returns the scenario that Run names, which must exist.
func (s settings) scenario() scenario {
	found, err := parseScenario(cmp.Or(s.Run, defaultScenario()))
	if err != nil {
		panic(err)
	}
	return found
}

// chaos is one run.
type chaos struct {
	settings
	scenario scenario
	dir      string // for its state and logs
	say      func(format string, args ...any)
	cluster  *controlplane.Cluster
	second   *twoAPIServers // nil if there is only one
	client   client.WithWatch
	fleet    *fleet.Fleet
	load     *load
	network  *network
	operator []*operator
	plugin   string    // kubectl cilium-pool, in the scenario renumber
	moves    *renumber // nil in other scenarios than renumber
	checker  string    // its address
	begin    time.Time

	mu     sync.Mutex
	phase  string
	faults map[fault]int
	deaths []time.Time // of API servers
	claims *claims.History
}

// run makes one run. It returns the report of a failed run, too.
func run(ctx context.Context, s settings, dir string, say func(string, ...any)) (_ *report, err error) {
	c := &chaos{
		settings: s, scenario: s.scenario(), dir: dir, say: say, begin: time.Now(),
		faults: map[fault]int{},
	}
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
		err = errors.Join(err, c.second.stop())
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
	agents, err := c.serveAgents(background)
	if err != nil {
		return nil, err
	}
	if err := c.startChecker(ctx, agents, background); err != nil {
		return nil, err
	}
	for _, o := range c.operator {
		background(o.name, o.supervise)
	}
	background("rules", c.watchVerdict)
	err = c.story(ctx)
	r, tellErr := c.tell()
	return r, cmp.Or(context.Cause(ctx), errors.Join(err, tellErr))
}

// story performs the steps of a run, in this order.
func (c *chaos) story(ctx context.Context) error {
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"join", c.join}, {"faults", c.act}, {"settle", c.settle}, {"histories", c.histories}, {"enough", c.enough},
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

// act runs the scenario, and leaves everything running.
func (c *chaos) act(ctx context.Context) error {
	if c.scenario.act != nil {
		return c.scenario.act(c, ctx)
	}
	if err := c.storm(ctx); err != nil || c.scenario.end == nil {
		return err
	}
	return c.scenario.end(ctx, c)
}

func (c *chaos) build(ctx context.Context) (err error) {
	if err := os.RemoveAll(c.dir); err != nil {
		return err
	}
	c.cluster, err = controlplane.Start(ctx, controlplane.Options{
		Dir: c.dir, BinDir: c.BinDir, AuditLog: true, AuditPolicy: c.Mode.auditPolicy(), EtcdMembers: c.scenario.etcdMembers,
	})
	if err != nil {
		return err
	}
	if c.client, err = newClient(c.cluster.Config()); err != nil {
		return err
	}
	agents := c.cluster.Config()
	agents.UserAgent = whole.AgentWriter // by which managedFields show who wrote
	agentClient, err := agent.NewClient(agents)
	if err != nil {
		return err
	}
	c.fleet = fleet.New(agentClient, fleet.Options{Seed: c.Seed, Retry: time.Second, Agent: agent.Options{
		IPAM: agent.IPAM(c.Mode.String()), PreAllocate: preAllocate, Health: true,
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
	if err := c.plant(ctx); err != nil || c.scenario.prepare == nil {
		return err
	}
	return c.scenario.prepare(ctx, c)
}

// updateRate is how often an agent reports; real agents take 15 s. It is short so that a
// minute sees many handshakes.
const updateRate = time.Second

// requestTimeout keeps the injectors of faults from waiting for an API server that was
// stopped.
const requestTimeout = 10 * time.Second

func newClient(cfg *rest.Config) (client.WithWatch, error) {
	scheme, err := invariant.Scheme()
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Timeout, cfg.WarningHandler = -1, requestTimeout, rest.NoWarnings{}
	return client.NewWithWatch(cfg, client.Options{Scheme: scheme})
}

// serveAgents lets the checker's process query what the agents hold.
func (c *chaos) serveAgents(background func(string, func(context.Context) error)) (url string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(c.fleet.Held()) // the client may be gone
	})}
	background("agents' addresses", func(context.Context) error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	background("agents' addresses", func(ctx context.Context) error {
		<-ctx.Done()
		return server.Close()
	})
	return "http://" + listener.Addr().String(), nil
}

// startChecker runs this binary again as the checker.
func (c *chaos) startChecker(ctx context.Context, agents string, background func(string, func(context.Context) error)) error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	out, in := io.Pipe()
	p, err := process.Start(process.Command{
		Name: "checker", Dir: c.dir, Stdout: in, Args: []string{binary, "check", c.dir, agents, c.Mode.String(), c.scenario.name},
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	background("checker", func(ctx context.Context) error {
		defer in.Close()
		defer close(ended)
		select {
		case <-ctx.Done():
			return p.Kill()
		case <-p.Ended():
			return fmt.Errorf("it ended by itself: see %s", filepath.Join(c.dir, "checker.log"))
		}
	})
	address := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			select {
			case address <- lines.Text():
			default:
			}
		}
	}()
	select {
	case c.checker = <-address:
		c.checker = "http://" + c.checker
		return nil
	case <-ended:
		return errors.New("the checker did not start")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// verdict queries the checker.
func (c *chaos) verdict(ctx context.Context, path string) (v verdict, err error) {
	err = get(ctx, c.checker+path, &v)
	return v, err
}

// errBroken means that a rule was broken.
var errBroken = errors.New("a rule is broken")

// watchVerdict prints the progress, and ends the run when a rule was broken.
func (c *chaos) watchVerdict(ctx context.Context) error {
	const every = 5 * time.Second
	for harness.Sleep(ctx, every) == nil {
		v, err := c.verdict(ctx, "/verdict")
		if err != nil {
			continue // a checker that ended is reported elsewhere
		}
		c.progress(v)
		if err := judge(v); err != nil {
			return err
		}
	}
	return nil
}

func judge(v verdict) error {
	var err error
	for _, violation := range v.Violations {
		err = errors.Join(err, fmt.Errorf("%w: %s", errBroken, violation))
	}
	for _, harm := range v.Evictions.Harm {
		err = errors.Join(err, fmt.Errorf("%w: %s", errBroken, harm))
	}
	if v.Stats.Gaps > 0 {
		err = errors.Join(err, fmt.Errorf("the checker missed versions, %d times", v.Stats.Gaps))
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
