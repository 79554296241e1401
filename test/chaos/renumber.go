package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/budgets"
)

const (
	pluginBinary = "kubectl-cilium_pool"
	// onePoolBits is the prefix length of blocks of the one pool: a node's pods need two
	// blocks.
	onePoolBits = 29
	// mostKills is the maximum number of times that renumber is killed; after abortAfter kills
	// it is aborted.
	mostKills, abortAfter = 8, 2
	// moveWithin is how long renumber may take, plus moveNodeWithin for each node.
	moveWithin, moveNodeWithin = 10 * time.Minute, 10 * time.Second
)

// renumberFaults returns the faults that are injected while all nodes move to another range.
func (c *chaos) renumberFaults() lane {
	return lane{gap: 10 * time.Second, work: 20 * time.Second, faults: []named{
		{leaderKilled, c.killLeader}, {bothKilled, c.killBoth}, {leaderPaused, c.pauseLeader},
	}}
}

// atATime returns how many of a series of actions on all nodes run concurrently: one for every
// twenty nodes.
func (c *chaos) atATime(least int) int { return max(least, c.Nodes/20) }

// zonesOfPool returns the number of zones of the nodes of one pool: a few more than agents
// that restart at a time.
func (c *chaos) zonesOfPool() int { return c.atATime(2) + 2 }

// buildPlugin builds kubectl cilium-pool, with the planted fault, if any.
func buildPlugin(ctx context.Context, c *chaos) (err error) {
	c.plugin, err = c.buildProgram(ctx, pluginBinary, harness.Root(), "plugin", nil)
	return err
}

// renumber simulates a person who moves all nodes of the pool to another range by kubectl
// cilium-pool renumber.
type renumber struct {
	*chaos
	pods       *workloads
	kubeconfig string
	from, to   netip.Prefix
	random     *rand.Rand
	took       time.Duration
	kills      int
	aborts     int
	alone      int // pods that were moved by hand
}

// renumber runs pods of controllers on all nodes, in two ranges, and moves the nodes from the
// first range to a third.
func (c *chaos) renumber(ctx context.Context) error {
	for i := range c.Nodes {
		c.load.remove(nodeName(i)) // pods without a controller would stay
	}
	pods, err := newWorkloads(ctx, c.cluster.Config(), c.client, c.settings)
	if err != nil {
		return err
	}
	for _, create := range []func(context.Context) error{pods.createAlone, pods.create} {
		if err := create(ctx); err != nil {
			return err
		}
		if err := until(ctx, patience, c.allRun); err != nil {
			return err
		}
	}
	r, err := c.newRenumber(ctx, pods)
	if err != nil {
		return err
	}
	c.say("  %d pods run; all nodes move from %s to %s", len(pods.slots), r.from, r.to)
	ctx, end := context.WithCancelCause(ctx)
	injected := make(chan struct{})
	go func() {
		defer close(injected)
		random := rand.New(rand.NewPCG(c.Seed, 21))
		end(fmt.Errorf("faults: %w", c.inject(ctx, c.lanes()[0], random, time.Now().Add(r.within()))))
	}()
	begin := time.Now()
	err = r.move(ctx)
	r.took = time.Since(begin)
	end(nil)
	<-injected
	return err
}

// newRenumber plans the move from the first CIDR of the pool to a new one.
func (c *chaos) newRenumber(ctx context.Context, pods *workloads) (*renumber, error) {
	pool := &v1alpha1.PodIPPool{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: c.scenario.pool}, pool); err != nil {
		return nil, err
	}
	r := &renumber{
		chaos: c, pods: pods, random: rand.New(rand.NewPCG(c.Seed, 22)), kubeconfig: filepath.Join(c.dir, "people.kubeconfig"),
		from: netip.MustParsePrefix(pool.Spec.IPv4.CIDRs[0].CIDR), to: netip.MustParsePrefix(c.network.cidr(pool.Name, c.network.bits-1).CIDR),
	}
	c.mu.Lock()
	c.moves = r
	c.mu.Unlock()
	return r, controlplane.WriteKubeconfig(r.kubeconfig, c.cluster.Config())
}

// within returns how long the whole move may take.
func (r *renumber) within() time.Duration { return moveWithin + time.Duration(r.Nodes)*moveNodeWithin }

// move calls the command until the old range is gone. It kills the command now and then, and
// aborts it once.
func (r *renumber) move(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.within(), fmt.Errorf("not within %s", r.within()))
	defer cancel()
	for {
		c, err := r.start("--yes", "--restart-agents", "--every=1s", fmt.Sprintf("--max-concurrent=%d", r.atATime(1)*4), fmt.Sprintf("--max-restarts=%d", r.atATime(2)))
		if err != nil {
			return err
		}
		killed, err := r.watch(ctx, c)
		if err != nil {
			return err
		}
		switch {
		case killed:
			err = r.killed(ctx)
		case c.code() == 0:
			return nil
		case c.code() == int(output.NotReached) && strings.Contains(c.said.String(), "leaves alone"):
			err = r.moveAlone(ctx)
		default:
			err = c.unexpected()
		}
		if err != nil {
			return err
		}
	}
}

// killed is called after the command was killed: it calls --abort once, else --status.
func (r *renumber) killed(ctx context.Context) error {
	r.mu.Lock()
	r.kills++
	abort := r.aborts == 0 && (r.kills == abortAfter || r.Small)
	if abort {
		r.aborts++
	}
	r.mu.Unlock()
	if !abort {
		return r.call("--status", 0, int(output.Failed), int(output.NotReached))
	}
	if err := r.call("--abort", 0); err != nil {
		return err
	}
	if err := r.call("--status", int(output.Failed)); err != nil {
		return err
	}
	return harness.Sleep(ctx, upTo(r.random, 10*time.Second))
}

// moveAlone deletes the pods of the old range that have no controller.
func (r *renumber) moveAlone(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := r.client.List(ctx, pods, client.MatchingLabels{appLabel: alone}); err != nil {
		return err
	}
	moved := 0
	for i := range pods.Items {
		pod := &pods.Items[i]
		if addr, err := netip.ParseAddr(pod.Status.PodIP); err != nil || !r.from.Contains(addr) {
			continue
		}
		if err := r.client.Delete(ctx, pod, client.GracePeriodSeconds(1)); err != nil {
			return err
		}
		moved++
	}
	if moved == 0 {
		return fmt.Errorf("%w: renumber waits for pods that it leaves alone, and there are none", errBroken)
	}
	r.say("  people move %d pods without a controller", moved)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alone += moved
	return nil
}

// renumberCall is one call of kubectl cilium-pool renumber.
type renumberCall struct {
	*process.Process
	args []string
	said *bytes.Buffer // its error output
}

// start calls the command with additional flags; its output goes to renumber.log.
func (r *renumber) start(more ...string) (*renumberCall, error) {
	log, err := os.OpenFile(process.LogPath(r.dir, "renumber"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	c := &renumberCall{said: &bytes.Buffer{}, args: append([]string{"renumber", "--from=" + r.from.String(), "--to=" + r.to.String()}, more...)}
	fmt.Fprintf(log, "\n%s %s\n", time.Now().Format(time.TimeOnly), strings.Join(c.args, " "))
	c.Process, err = process.Start(process.Command{
		Name: "renumber", Args: append([]string{r.plugin, "--kubeconfig=" + r.kubeconfig}, c.args...),
		Env: append(os.Environ(), "MUTANT="+r.Mutant), Stdout: log, Stderr: io.MultiWriter(log, c.said),
	})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		<-c.Ended()
		_ = log.Close()
	}()
	return c, nil
}

// watch waits until the command has ended, or kills it after a while.
func (r *renumber) watch(ctx context.Context, c *renumberCall) (killed bool, err error) {
	var kill <-chan time.Time // never
	if r.kills < mostKills {
		kill = time.After(2*time.Second + upTo(r.random, 10*time.Second+time.Duration(r.Nodes)*100*time.Millisecond))
	}
	select {
	case <-c.Ended():
		return false, nil
	case <-kill:
		return true, c.Kill()
	case <-ctx.Done():
		return false, errors.Join(context.Cause(ctx), c.Kill())
	}
}

// call calls the command with a flag, and waits until it exits with one of these codes.
func (r *renumber) call(flag string, codes ...int) error {
	c, err := r.start(flag)
	if err != nil {
		return err
	}
	code := c.code()
	r.say("  renumber %s exits with %d", flag, code)
	if slices.Contains(codes, code) {
		return nil
	}
	return c.unexpected()
}

// code waits until the command exits, and returns its exit code.
func (c *renumberCall) code() int {
	var exited *exec.ExitError
	switch err := c.Err(); {
	case errors.As(err, &exited):
		return exited.ExitCode()
	case err != nil:
		return -1
	}
	return 0
}

func (c *renumberCall) unexpected() error {
	return fmt.Errorf("%w: %s exits with %d: %s", errBroken, strings.Join(c.args, " "), c.code(), strings.TrimSpace(c.said.String()))
}

// allRun returns nil once all pods run.
func (c *chaos) allRun(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := c.client.List(ctx, pods, client.InNamespace("default")); err != nil {
		return err
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.PodIP == "" || p.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s on %s does not run", p.Name, p.Spec.NodeName)
		}
	}
	return nil
}

func isReady(p *corev1.Pod) bool { return budgets.HasCondition(p, corev1.PodReady) }

// renumbered checks the end: nothing names the old range, all pods run, and nothing is
// written any more.
func (c *chaos) renumbered(ctx context.Context) error {
	for _, step := range []struct {
		what  string
		holds func(context.Context) error
	}{
		{"all pods run", c.allRun},
		{"each pod has its successor", c.moves.pods.complete},
		{"nothing names the old range", c.moves.gone},
		{"the pool says so", func(ctx context.Context) error { return c.poolsMatch(ctx, reclaimed) }},
		{"nothing moves", harness.Still(c.client, 2*time.Second)},
	} {
		begin := time.Now()
		if err := until(ctx, patience, step.holds); err != nil {
			return fmt.Errorf("%w: %s: %w", errBroken, step.what, err)
		}
		c.say("  %s, after %.1f s", step.what, time.Since(begin).Seconds())
	}
	if err := c.moves.call("--status", 0); err != nil {
		return err
	}
	return c.quiet(ctx)
}

// reclaimed reports whether a block drains because its node has enough without it. Such a
// drain lasts as long as the pods that hold the block's addresses.
func reclaimed(b *v1alpha1.PodIPBlock) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockDraining)
	return c != nil && c.Reason == v1alpha1.ReasonReclaim
}

// gone returns nil once no object names the old range.
func (r *renumber) gone(ctx context.Context) error {
	for _, list := range []client.ObjectList{
		&v1alpha1.PodIPBlockList{}, &v1alpha1.PodIPPoolList{}, &ciliumv2.CiliumNodeList{}, &corev1.NodeList{}, &corev1.PodList{},
	} {
		if err := r.client.List(ctx, list); err != nil {
			return err
		}
		text, err := json.Marshal(list)
		if err != nil {
			return err
		}
		if left := harness.AddressesIn(string(text), r.from); len(left) > 0 {
			return fmt.Errorf("%T names %d addresses and CIDRs of %s, such as %s", list, len(left), r.from, left[0])
		}
	}
	return nil
}

// figures returns the figures of renumber, or nil if there are none.
func (r *renumber) figures(seen evictions) map[string]int {
	if r == nil {
		return nil
	}
	return map[string]int{
		podsCreated: int(r.pods.created.Load()), podsDeleted: seen.Evicted + r.alone,
		moveSeconds: int(r.took.Seconds()), movesKilled: r.kills, movesAborted: r.aborts, podsAlone: r.alone,
		podsEvicted: seen.Evicted, podsStayed: seen.Stayed, agentsRenewed: seen.Restarted, budgetsJudged: seen.Budgets, budgetsSpent: seen.Spent,
	}
}

// enough returns an error for a run in which renumber did too little.
func (r *renumber) enough(nodes int, seen evictions) error {
	if r == nil {
		return nil
	}
	for _, least := range []struct {
		what      string
		got, want int
	}{
		{movesKilled, r.kills, 1}, {movesAborted, r.aborts, 1}, {podsAlone, r.alone, 1}, {podsEvicted, seen.Evicted, nodes},
		{podsStayed, seen.Stayed, 1}, {agentsRenewed, seen.Restarted, nodes}, {budgetsJudged, seen.Budgets, 1}, {budgetsSpent, seen.Spent, 1},
	} {
		if least.got < least.want {
			return fmt.Errorf("%w: %d %s, at least %d are wanted", errIdle, least.got, least.what, least.want)
		}
	}
	return nil
}
