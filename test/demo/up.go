package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

func (o options) upDir() string      { return filepath.Join(o.runDir, "up") }
func (o options) kubeconfig() string { return filepath.Join(o.runDir, "kubeconfig") }

// up starts control plane, operator and agents, and leaves them running.
func up(ctx context.Context, o options, p *printer) (err error) {
	s, err := build(ctx, o.binDir, o.upDir(), true, p.note)
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
	if agents, err = start(s.dir, agentsName, true, binary, agentsName, "--run-dir="+o.runDir); err != nil {
		return err
	}
	if _, err := s.setUp(ctx, o); err != nil {
		return err
	}
	if err := s.settled(ctx, o.nodes); err != nil {
		return err
	}
	kubectl := s.kubectlCommand(o)
	p.text(`
%s run.

Try
  %s get podippools,podipblocks,ciliumnodes
  %s get podipblocks -w
  make burst NODE=beijing-01 PODS=100     and after a while PODS=0
  %s delete ciliumnode beijing-01
  %s edit podippool beijing
  curl -s http://%s/metrics | grep cilium_pool
Logs and state are in %s. The operator is told to be quick: a block is idle after %s and rests %s.
make down stops it all.`,
		plural(o.nodes, "node"), kubectl, kubectl, kubectl, kubectl, s.metrics, s.dir, idleFor, cooldown)
	return nil
}

// settled waits until every node has addresses and its agent takes pods.
func (s *stage) settled(ctx context.Context, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		seen, err := s.look(ctx)
		if err != nil {
			return err
		}
		// A node that uses addresses has an agent.
		if len(seen.nodes) == nodes && !slices.ContainsFunc(seen.nodes, func(n nodeSight) bool { return n.used == 0 }) {
			return nil
		}
		if err := wait(ctx, poll); err != nil {
			return fmt.Errorf("wait for the nodes' first blocks: %w; see the logs in %s", err, s.dir)
		}
	}
}

// kubectlCommand is how to call kubectl here.
func (s *stage) kubectlCommand(o options) string {
	name := "kubectl"
	if _, err := exec.LookPath(name); err != nil {
		name = filepath.Join(o.binDir, name)
	}
	return name + " --kubeconfig=" + o.kubeconfig()
}

// down stops what up started, and only that.
func down(o options, p *printer) error {
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

// runAgents plays agents and kubelets of all Nodes until ctx ends.
func runAgents(ctx context.Context, o options) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig())
	if err != nil {
		return err
	}
	f, err := newFleet(cfg)
	if err != nil {
		return err
	}
	fmt.Println("pid", strconv.Itoa(os.Getpid()), "plays the agents of all Nodes")
	f.run(ctx)
	return nil
}

// playBurst gives a node of what up started so many pods.
func playBurst(ctx context.Context, o options, p *printer, node string, count int) error {
	if node == "" || count < 0 || count > 10000 {
		return fmt.Errorf("%w: burst needs a node, as in NODE=beijing-01, and from 0 to 10000 pods", errUsage)
	}
	cluster, err := controlplane.Attach(o.upDir())
	if err != nil {
		return fmt.Errorf("%w: start it with make up", err)
	}
	s := &stage{binDir: o.binDir, dir: o.upDir(), cluster: cluster}
	if err := s.connect(); err != nil {
		return err
	}
	if err := s.client.Get(ctx, client.ObjectKey{Name: node}, &corev1.Node{}); err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	by := 0
	err = s.scale(ctx, burstApp, node, count, func(difference int) {
		by = difference
		p.text("%+d pods on %s", by, node)
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for begin := time.Now(); ; {
		seen, err := s.look(ctx)
		if err != nil {
			return err
		}
		n := seen.node(node)
		has := fmt.Sprintf("it has %s with %s", plural(len(n.blocks)+len(n.leaving), "block"), plural(n.addresses, "address"))
		took := time.Since(begin).Seconds()
		switch {
		case by >= 0 && allRunning(seen):
			p.text("all %s of %s have an address after %.1f s; %s", plural(n.running, "pod"), node, took, has)
			return nil
		case by < 0 && n.running <= count+basePods:
			p.text("they are gone after %.1f s; %s, and gives back what stays idle for %s", took, has, idleFor)
			return nil
		}
		if err := wait(ctx, poll); err != nil {
			return fmt.Errorf("%s without an address: %w", plural(seen.waiting, "pod"), err)
		}
	}
}
