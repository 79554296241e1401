package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

func (o options) upDir() string      { return filepath.Join(o.runDir, "up") }
func (o options) kubeconfig() string { return filepath.Join(o.runDir, "kubeconfig") }

// up starts the control plane, operator and agents, and leaves them running.
func up(ctx context.Context, o options, p *printer) (err error) {
	s, err := build(ctx, o, o.upDir(), true, p)
	if err != nil {
		return fmt.Errorf("%w (make down stops what runs)", err)
	}
	var agents *process.Process
	defer func() {
		if err != nil {
			err = errors.Join(err, agents.Stop(stopTimeout), s.strike())
		}
	}()
	if err := s.cluster.WriteKubeconfig(o.kubeconfig()); err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	if agents, err = s.start(agentsName, binary, agentsName, "--run-dir="+o.runDir, "--mode="+string(o.mode), "--ipv6="+strconv.FormatBool(o.ipv6)); err != nil {
		return err
	}
	if _, err := s.setUp(ctx, o); err != nil {
		return err
	}
	_, err = s.await(ctx, func(seen *sight) bool { // a node that uses addresses has an agent
		return len(seen.nodes) == o.nodes && seen.every(func(n nodeSight) bool { return n.used > 0 })
	})
	if err != nil {
		return fmt.Errorf("wait for the nodes' first blocks: %w; see the logs in %s", err, s.dir)
	}
	kubectl := "kubectl"
	if _, err := exec.LookPath(kubectl); err != nil {
		kubectl = filepath.Join(o.binDir, kubectl)
	}
	kubectl += " --kubeconfig=" + o.kubeconfig()
	p.text(`
%s run.

Try
  %s get podippools,podipblocks,ciliumnodes
  %s get podipblocks -w
  make burst NODE=beijing-01 PODS=100     and after a while PODS=0
  %s delete ciliumnode beijing-01
  %s edit podippool beijing
  curl -s http://%s/metrics | grep cilium_pool
Logs and state are in %s. The operator runs with short times: %s, and cools down for %s.
make down stops it all.`,
		plural(o.nodes, "node"), kubectl, kubectl, kubectl, kubectl, s.metrics, s.dir, s.leaves(), s.cooldown())
	return nil
}

// leaves says when a block begins to leave its node.
func (s *stage) leaves() string {
	if s.wholeBlocks() {
		return "an agent returns a block once it is empty and the others cover its request"
	}
	return "a block is idle after " + idleFor.String()
}

// await polls until the state is as expected.
func (s *stage) await(ctx context.Context, holds func(*sight) bool) (seen *sight, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = harness.Until(ctx, poll, func(ctx context.Context) (err error) {
		if seen, err = s.look(ctx); err == nil && !holds(seen) {
			err = fmt.Errorf("%s without an address", plural(seen.waiting, "pod"))
		}
		return err
	})
	return seen, err
}

// down stops the processes that up started.
func down(_ context.Context, o options, p *printer) error {
	var errs []error
	stopped := 0
	for _, name := range []string{agentsName, operatorName} {
		p, err := process.Find(o.upDir(), name)
		if p != nil {
			stopped++
		}
		errs = append(errs, err, p.Stop(stopTimeout))
	}
	cluster, err := controlplane.Attach(o.upDir())
	switch {
	case err == nil:
		if etcd, api := cluster.PIDs(); etcd != 0 || api != 0 {
			stopped++
		}
		errs = append(errs, cluster.Stop())
	case !errors.Is(err, fs.ErrNotExist):
		errs = append(errs, err)
	}
	if err := os.Remove(o.kubeconfig()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if stopped == 0 {
		p.text("nothing runs")
		return nil
	}
	p.text("stopped; the logs are still in %s", o.upDir())
	return nil
}

// runAgents simulates agents and kubelets of all Nodes until ctx ends.
func runAgents(ctx context.Context, o options, p *printer) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig())
	if err != nil {
		return err
	}
	agents, err := newFleet(cfg, o)
	if err != nil {
		return err
	}
	p.text("pid %s plays the agents of all Nodes", strconv.Itoa(os.Getpid()))
	agents.Follow(ctx)
	return nil
}

// playBurst scales the pods of a node in the cluster that up started.
func playBurst(ctx context.Context, o options, p *printer) error {
	if o.node == "" || o.pods < 0 || o.pods > 10000 {
		return fmt.Errorf("%w: burst needs a node, as in NODE=beijing-01, and from 0 to 10000 pods", ErrUsage)
	}
	cluster, err := controlplane.Attach(o.upDir())
	if err != nil {
		return fmt.Errorf("%w: start it with make up", err)
	}
	s := &stage{binDir: o.binDir, dir: o.upDir(), cluster: cluster}
	if err := s.connect(); err != nil {
		return err
	}
	if err := s.client.Get(ctx, client.ObjectKey{Name: o.node}, &corev1.Node{}); err != nil {
		return fmt.Errorf("node %s: %w", o.node, err)
	}
	by := 0
	err = s.scale(ctx, burstApp, o.node, o.pods, func(difference int) {
		by = difference
		p.text("%+d pods on %s", by, o.node)
	})
	if err != nil {
		return err
	}
	begin := time.Now()
	seen, err := s.await(ctx, func(seen *sight) bool {
		return by < 0 && seen.node(o.node).running <= o.pods+basePods || by >= 0 && allRunning(seen)
	})
	if err != nil {
		return err
	}
	n, took := seen.node(o.node), time.Since(begin).Seconds()
	has := fmt.Sprintf("it has %s with %s", plural(len(n.blocks)+len(n.leaving), "block"), plural(n.addresses, "address"))
	if by < 0 {
		p.text("they are gone after %.1f s; %s, and returns what it does not need", took, has)
		return nil
	}
	p.text("all %s of %s have an address after %.1f s; %s", plural(n.running, "pod"), o.node, took, has)
	return nil
}
