package invariant

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Options configure a Checker. The zero value checks everything.
type Options struct {
	// Cooldown is the minimum time a block must have cooled down before its object may be
	// deleted. Zero: any.
	Cooldown time.Duration
	// Agents, if set, returns the addresses that each node's agent and pods hold at that
	// moment.
	Agents func() map[string][]netip.Addr
	// AgentsEvery is the interval of asking Agents. Zero: 2 s.
	AgentsEvery time.Duration
	// Judges, if set, selects the violations that are recorded, for as long as the Checker runs: in
	// modes with rules that another judge knows. It must not block, nor call the Checker. Nil: all.
	// For deliberate violations of a test, use Exempt.
	Judges func(Violation) bool
	// OnChange, if set, is called with every version, in order, after it was judged.
	// It must not block, nor call the Checker.
	OnChange func(Change)
}

// Reader lists and watches the checked kinds, and lists them as PartialObjectMetadata too.
type Reader interface {
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
	Watch(ctx context.Context, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error)
}

// Change is one version of one object.
type Change struct {
	Kind Kind
	Name string
	// Version is the resourceVersion; if New is nil, the deletion's.
	Version uint64
	// Received is when the watch delivered it.
	Received time.Time
	// Old and New are the versions before and after; nil: there is none.
	Old, New client.Object
	// Writer is the program that wrote it, if known apart from its managedFields.
	Writer string
	// Unshown reports whether the writer had not seen a block when the change was
	// decided on. Nil: unknown.
	Unshown func(cidr netip.Prefix) bool
}

// Violation is a broken rule.
type Violation struct {
	// Rule is its number in the package's documentation.
	Rule int
	// Subject is a node or a block.
	Subject string
	// Text describes the event, with the resourceVersions.
	Text string
	// Version is the resourceVersion of the step that broke the rule.
	Version uint64
}

func (v Violation) String() string {
	return fmt.Sprintf("rule %d, %s: %s (resourceVersion %d)", v.Rule, v.Subject, v.Text, v.Version)
}

// Checker checks from Watch until the context of Watch ends.
type Checker struct {
	client  Reader
	opts    Options
	streams map[Kind]*stream

	mu         sync.Mutex
	history    history
	model      *model
	violations []Violation
	exemptions []*exempt
	reported   map[string]bool
	stats      Stats
	// restless collects writes while Quiet waits.
	restless *[]Violation
	done     chan struct{} // closed, and replaced, when applied moves
}

// Watch starts a Checker, which accepts the state that it finds.
func Watch(ctx context.Context, cfg *rest.Config, opts Options) (*Checker, error) {
	reader, err := harness.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("watch for broken rules: %w", err)
	}
	if opts.AgentsEvery == 0 {
		opts.AgentsEvery = 2 * time.Second
	}
	c := &Checker{
		client: reader, opts: opts,
		streams:  map[Kind]*stream{},
		model:    newModel(),
		reported: map[string]bool{},
		stats:    Stats{Versions: map[Kind]int{}},
		done:     make(chan struct{}),
	}
	if err := c.begin(ctx); err != nil {
		return nil, fmt.Errorf("watch for broken rules: %w", err)
	}
	return c, nil
}

// begin reads every kind as of one version, and watches from there.
func (c *Checker) begin(ctx context.Context) error {
	at, err := c.now(ctx)
	if err != nil {
		return err
	}
	for _, k := range kinds() {
		s := newStream(c.client, k, c)
		c.streams[k] = s
		if err := s.list(ctx, at); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.history.start(at)
	c.advance()
	c.mu.Unlock()
	for _, s := range c.streams {
		go s.watch(ctx, at)
	}
	go c.keepUp(ctx)
	if c.opts.Agents != nil {
		go c.askAgents(ctx)
	}
	return nil
}

// Violations returns all violations so far, oldest first. A lasting one is reported once.
func (c *Checker) Violations() []Violation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Violation(nil), c.violations...)
}

// Sync waits until all writes before the call have been judged, or ctx ends.
func (c *Checker) Sync(ctx context.Context) error {
	at, err := c.now(ctx)
	if err != nil {
		return err
	}
	if err := c.catchUp(ctx, kinds()...); err != nil {
		return err
	}
	for {
		c.mu.Lock()
		reached, next := c.history.applied >= at, c.done
		c.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("catch up with version %d: %w", at, ctx.Err())
		}
	}
}

// report records a violation. The caller holds c.mu.
func (c *Checker) report(v Violation) {
	key := fmt.Sprint(v.Rule, v.Subject, v.Text)
	if c.reported[key] || c.excused(v) || c.opts.Judges != nil && !c.opts.Judges(v) {
		return
	}
	c.reported[key] = true
	c.violations = append(c.violations, v)
}

// arrived receives a version from a stream.
func (c *Checker) arrived(e event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.add(e)
	c.advance()
}

// passed records that a stream has delivered everything up to a version.
func (c *Checker) passed(k Kind, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.pass(k, version)
	c.advance()
}

// advance judges all versions that no stream can still deliver an earlier version for. The
// caller holds c.mu.
func (c *Checker) advance() {
	before := c.history.applied
	for {
		e, ok := c.history.next()
		if !ok {
			break
		}
		c.step(e)
	}
	if c.history.applied != before {
		close(c.done)
		c.done = make(chan struct{})
	}
}

// step judges one version and makes it the state. The caller holds c.mu.
func (c *Checker) step(e event) {
	change := Change{Kind: e.kind, Name: e.key, Version: e.version, Received: e.received, Old: c.model.objects[e.kind][e.key], New: e.object}
	if e.origin != found {
		c.stats.Versions[e.kind]++
		c.stats.count(c.model, change)
		for _, v := range c.model.judge(change, e.origin, c.opts.Cooldown) {
			c.report(v)
		}
		c.noticeRest(change)
	}
	c.model.apply(change)
	if b := blockOf(change.New); e.origin == found && b != nil {
		c.model.blocks[b.cidr].made = 0
	}
	if e.origin != found && c.opts.OnChange != nil {
		c.opts.OnChange(change)
	}
}
