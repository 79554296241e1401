package demo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/fleet"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

const (
	// patience limits the wait for an expected state.
	patience = 5 * time.Minute
	poll     = 200 * time.Millisecond
)

// story is one run of the demo.
type story struct {
	*stage
	*printer
	fleet   *fleet.Fleet
	checker *invariant.Checker
	whole   *whole.Rules // of whole blocks, which agents return; nil in crd mode
	names   []string     // of all nodes
	// failedWithout counts the CNI ADDs that failed because no operator ran.
	failedWithout int64
	failures      []string
	// lost is the subject of the CiliumNode that the story deletes. The rules of whole blocks have no
	// exemptions.
	lost string

	mu sync.Mutex
	// peaks are the most blocks that each node had published at a time.
	peaks map[string]int
}

// tellStory runs the demo; it fails if an expectation failed.
func tellStory(ctx context.Context, o options, p *printer) (err error) {
	p.heading("Control plane and operator",
		"etcd, kube-apiserver and the operator run as processes of their own; nothing else is real:",
		"agents and kubelets are simulated in this process, after "+source(o.mode)+" of Cilium v1.20.1.")
	stage, err := build(ctx, o, filepath.Join(o.runDir, "demo"), false, p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer func() {
		cancel()
		parts.Wait()
		err = errors.Join(err, stage.strike())
	}()
	s := &story{stage: stage, printer: p, peaks: map[string]int{}}
	if s.fleet, err = newFleet(stage.cluster.Config(), o); err != nil {
		return err
	}
	rules := invariant.Options{Cooldown: s.cooldown(), Agents: s.fleet.Held, OnChange: func(c invariant.Change) {
		s.see(c)
		narrator{printer: p, cooldown: s.cooldown()}.tell(c)
	}}
	if s.wholeBlocks() {
		s.whole = whole.New(whole.InPools())
		rules.Agents, rules.Judges = nil, whole.Judges
	}
	s.checker, err = invariant.Watch(ctx, stage.cluster.Config(), rules)
	if err != nil {
		return err
	}
	parts.Go(func() { s.fleet.Follow(ctx) })
	p.note("operator started, pid %d, log %s", stage.operator.PID(), s.log())
	if err := s.waves(ctx, o); err != nil {
		return err
	}
	return s.finish(ctx)
}

// source returns the file of Cilium that agents are simulated after.
func source(mode agent.IPAM) string {
	if mode == agent.MultiPool {
		return "pkg/ipam/multipool_manager.go"
	}
	return "pkg/ipam/crd.go"
}

// askAgents checks once that agents hold only addresses of their blocks.
func (s *story) askAgents(ctx context.Context) error {
	if s.whole != nil {
		return s.whole.AskAgents(ctx, s.fleet.Held, s.checker.Sync)
	}
	return s.checker.AskAgents(ctx)
}

// see records the most blocks that a node had published.
func (s *story) see(c invariant.Change) {
	if s.whole != nil {
		s.whole.See(c)
	}
	if cn, ok := c.New.(*ciliumv2.CiliumNode); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.peaks[c.Name] = max(s.peaks[c.Name], len(listed(cn)))
	}
}

func (s *story) log() string { return filepath.Join(s.dir, operatorName+".log") }

// until waits until the cluster reaches the expected state. A timeout counts as a failed
// expectation; an error ends the demo.
func (s *story) until(ctx context.Context, what string, holds func(*sight) bool) error {
	begin := time.Now()
	for {
		seen, err := s.look(ctx)
		if err != nil {
			return err
		}
		if holds(seen) {
			took := time.Since(begin).Seconds()
			if err := s.checker.Sync(ctx); err != nil { // first report the cause
				return err
			}
			s.expect(true, "%s, after %.1f s", what, took)
			return nil
		}
		if time.Since(begin) > patience {
			s.expect(false, "%s, within %s", what, patience)
			return nil
		}
		if !s.operator.Running() {
			return fmt.Errorf("the operator ended by itself; its log ends:\n%s", s.operator.LogTail())
		}
		if err := harness.Sleep(ctx, poll); err != nil {
			return err
		}
	}
}

// expect records whether an expectation holds.
func (s *story) expect(ok bool, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if ok {
		s.event(bold, "", "✓ %s", what)
		return
	}
	s.failures = append(s.failures, "expected: "+what)
	s.event(red, "", "✗ %s", what)
}

// allRunning reports whether every pod has its address.
func allRunning(s *sight) bool { return s.waiting == 0 }

// finish prints the results.
func (s *story) finish(ctx context.Context) error {
	if err := errors.Join(s.checker.Sync(ctx), s.askAgents(ctx)); err != nil {
		return err
	}
	seen, err := s.look(ctx)
	if err != nil {
		return err
	}
	s.heading("At the end")
	s.text("%s", s.nodeTable(seen))
	for _, args := range [][]string{{"get", "podippools"}, {"get", "podipblocks", "--field-selector=spec.poolName=" + zones[0]}} {
		out, err := s.kubectl(ctx, args...)
		if err != nil {
			return err
		}
		s.text("%s\n%s", s.paint(bold, "$ kubectl "+strings.Join(args, " ")), out)
	}
	return s.verdict()
}

func (s *story) verdict() error {
	stats, added, failed := s.checker.Stats(), s.fleet.Added.Load(), s.fleet.Failed.Load()
	s.heading("Outcome")
	s.text("%s in %.0f s: %s claimed, of which %d to grow; %s given back, %s undone",
		plural(len(s.names), "node"), time.Since(s.begin).Seconds(),
		plural(stats.Claims, "block"), stats.Expansions, plural(stats.Reclaims, "block"), plural(stats.Undrains, "drain"))
	s.text("CNI ADDs: %d succeeded; %d failed and were tried again, as kubelet does, %d of them while there was no operator",
		added, failed, s.failedWithout)
	broken := s.checker.Violations()
	if s.whole != nil {
		broken = append(broken, slices.DeleteFunc(s.whole.Violations(), func(v invariant.Violation) bool {
			return v.Subject == s.lost && strings.Contains(v.Text, "deleted with its object")
		})...)
		stats.AgentChecks = s.whole.Asked()
		s.text("blocks that agents returned: %d", s.whole.Taken())
	} else {
		s.text("addresses: %d published, %d asked back, %d taken out", stats.Published, stats.Marked, stats.Removed)
	}
	s.text("invariants: %s; the agents were asked %d times what they hold", stats, stats.AgentChecks)
	if stats.Gaps > 0 {
		s.failures = append(s.failures, "the invariant check missed versions")
	}
	for _, v := range broken {
		s.failures = append(s.failures, "broken: "+v.String())
	}
	if len(s.failures) == 0 {
		s.text("%s", s.paint(green, "no rule was broken, and everything came as expected"))
		return nil
	}
	for _, f := range s.failures {
		s.text("%s", s.paint(red, f))
	}
	s.text("the operator's log is %s", s.log())
	return ErrUnexpected
}
