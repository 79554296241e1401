package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/fleet"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

const (
	release   = "cilium-pool-operator"
	stopGrace = 10 * time.Second
	// updateRate is how often an agent reports; real agents take 15 s. It is short so that
	// blocks are returned within a run.
	updateRate = 2 * time.Second
	// retryADD is how long the kubelet waits before it retries a CNI ADD.
	retryADD = time.Second
	// schedulerConfig lifts the limit of 50 requests per second. Everything else is as
	// released.
	schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %s, qps: 10000, burst: 10000}
`
)

// cluster is a control plane with the scheduler, the operator and simulated nodes.
type cluster struct {
	*controlplane.Cluster
	settings
	client   client.WithWatch
	fleet    *fleet.Fleet
	misses   misses
	operator *process.Process
	// chart contains the objects that the chart renders.
	chart []*unstructured.Unstructured
}

// startCluster starts everything but the operator. It creates the chart's objects except its
// workload and the policies that make pods request addresses.
func startCluster(ctx context.Context, s settings) (_ *cluster, err error) {
	if err := os.RemoveAll(s.dir); err != nil {
		return nil, err
	}
	c := &cluster{settings: s}
	c.chart, err = harness.RenderChart(ctx, harness.Helm4, "--set", "scheduling.enabled=true", "--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")
	if err != nil {
		return nil, err
	}
	if c.Cluster, err = controlplane.Start(ctx, controlplane.Options{Dir: s.dir, BinDir: s.binDir}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if c.client, err = harness.NewClient(c.Config()); err != nil {
		return nil, err
	}
	agents, err := agent.NewClient(c.Config())
	if err != nil {
		return nil, err
	}
	c.fleet = fleet.New(agents, fleet.Options{Seed: s.seed, Retry: retryADD, Workers: 64, OnExhausted: c.misses.note, Agent: agent.Options{
		Health: true, UpdateRate: updateRate, PollInterval: 500 * time.Millisecond,
	}})
	if err := c.apply(ctx, "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"); err != nil {
		return nil, err
	}
	return c, c.startScheduler()
}

// apply creates the chart's objects of these kinds.
func (c *cluster) apply(ctx context.Context, kinds ...string) error {
	for _, o := range c.chart {
		if !slices.Contains(kinds, o.GetKind()) {
			continue
		}
		if err := c.client.Create(ctx, o.DeepCopy()); err != nil {
			return fmt.Errorf("create %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

func (c *cluster) startScheduler() error {
	path := filepath.Join(c.dir, "scheduler.yaml")
	config := fmt.Sprintf(schedulerConfig, filepath.Join(c.dir, "kubeconfig"))
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return err
	}
	// The scheduler ends with this process.
	_, err := process.Start(process.Command{
		Name: "kube-scheduler", Dir: c.dir, Args: []string{filepath.Join(c.binDir, "kube-scheduler"), "--config=" + path, "--secure-port=0"},
	})
	return err
}

// startOperator starts the operator, with the rights that the chart gives it and durations
// that let blocks be returned within a run.
func (c *cluster) startOperator(ctx context.Context, more ...string) error {
	cfg, err := c.ConfigFor(ctx, metav1.NamespaceSystem, release)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(c.dir, "operator.kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, cfg); err != nil {
		return err
	}
	c.operator, err = process.Start(process.Command{Name: "operator", Dir: c.dir, Args: append([]string{
		filepath.Join(c.binDir, "cilium-pool-operator"), "--kubeconfig=" + kubeconfig, "--leader-elect=false",
		"--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--reclaim-idle-for=5s", "--ack-hold=500ms", "--ack-timeout=" + (2 * updateRate).String(), "--agent-settle-time=1s",
		"--cooldown=2s", "--node-gone-cooldown=4s", "--reclaims-per-minute=0", "--reclaims-per-minute-per-pool=0",
	}, more...)})
	return err
}

// enable turns the feature on, as helm upgrade does: it creates the policies and restarts the
// operator.
func (c *cluster) enable(ctx context.Context) error {
	c.misses.begin()
	if err := c.apply(ctx, "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"); err != nil {
		return err
	}
	if err := c.operator.Stop(stopGrace); err != nil {
		return err
	}
	if err := c.startOperator(ctx, "--scheduling-families=ipv4"); err != nil {
		return err
	}
	return c.awaitOffers(ctx)
}

// awaitOffers waits until pods request an address and all nodes offer some.
func (c *cluster) awaitOffers(ctx context.Context) error {
	dry := client.NewDryRunClient(c.client)
	return harness.Until(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "sample"}}
		p.Spec.Containers = []corev1.Container{{Name: "app", Image: "registry.example.com/app"}}
		if err := dry.Create(ctx, p); err != nil {
			return err
		}
		if _, requests := p.Spec.Containers[0].Resources.Requests[v1alpha1.IPv4Resource]; !requests {
			return errors.New("pods request no address yet")
		}
		nodes := &corev1.NodeList{}
		if err := c.client.List(ctx, nodes); err != nil {
			return err
		}
		for _, n := range nodes.Items {
			if _, offers := n.Status.Allocatable[v1alpha1.IPv4Resource]; !offers {
				return fmt.Errorf("node %s offers no address yet", n.Name)
			}
		}
		return nil
	})
}

// ended returns an error if a program has exited by itself.
func (c *cluster) ended() error {
	if c.operator != nil && !c.operator.Running() {
		return fmt.Errorf("the operator ended by itself; its log ends:\n%s", c.operator.LogTail())
	}
	return nil
}

// offer patches what a Node offers.
func (c *cluster) offer(ctx context.Context, node, patch string) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	return c.client.Status().Patch(ctx, n, client.RawPatch("application/merge-patch+json", []byte(patch)))
}
