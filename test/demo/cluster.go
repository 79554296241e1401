package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

// Names of the processes beside etcd and kube-apiserver.
const (
	operatorName = "cilium-pool-operator"
	agentsName   = "agents"
)

// stage is where the demo plays: a control plane, the operator, and a client.
type stage struct {
	binDir, dir string
	detached    bool
	cluster     *controlplane.Cluster
	client      client.WithWatch
	operator    *process.Process
	metrics     string // address of the operator's metrics
}

// build starts a control plane with its state in dir. What was there before is
// removed. When it fails it leaves nothing running.
func build(ctx context.Context, binDir, dir string, detached bool, say func(string, ...any)) (_ *stage, err error) {
	if binDir, err = filepath.Abs(binDir); err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if old, err := controlplane.Attach(dir); err == nil {
		if etcd, api := old.PIDs(); etcd != 0 || api != 0 {
			return nil, fmt.Errorf("one runs already in %s", dir)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	s := &stage{binDir: binDir, dir: dir, detached: detached}
	s.cluster, err = controlplane.Start(ctx, controlplane.Options{
		Dir: dir, BinDir: binDir, Detached: detached, Log: lineWriter(say),
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.strike())
		}
	}()
	if err := s.connect(); err != nil {
		return nil, err
	}
	return s, s.startOperator()
}

func (s *stage) connect() error {
	scheme, err := controller.Scheme()
	if err != nil {
		return err
	}
	s.client, err = client.NewWithWatch(s.cluster.Config(), client.Options{Scheme: scheme})
	return err
}

// startOperator runs the operator as a process of its own, with times that let
// a scale-down end within seconds.
func (s *stage) startOperator() error {
	if s.metrics == "" {
		port, err := controlplane.FreePort("127.0.0.1")
		if err != nil {
			return err
		}
		s.metrics = fmt.Sprintf("127.0.0.1:%d", port)
	}
	var err error
	s.operator, err = start(s.dir, operatorName, s.detached, filepath.Join(s.binDir, operatorName),
		"--kubeconfig="+filepath.Join(s.dir, "kubeconfig"),
		"--metrics-bind-address="+s.metrics, "--metrics-secure=false", "--health-probe-bind-address=0",
		"--leader-elect-lease-duration=10s",
		"--reclaim-idle-for="+idleFor.String(), "--ack-hold=2s", "--ack-timeout=10s",
		"--cooldown="+cooldown.String(), "--node-gone-cooldown=10s", "--agent-settle-time=2s",
	)
	return err
}

// start runs a part of the demo that "down" finds again.
func start(dir, name string, detached bool, args ...string) (*process.Process, error) {
	return process.Start(process.Command{Name: name, Dir: dir, Args: args, PIDFile: true, Detached: detached})
}

// stopTimeout is how long a process may take over SIGTERM before SIGKILL.
const stopTimeout = 10 * time.Second

const (
	idleFor  = 5 * time.Second
	cooldown = 3 * time.Second
)

// strike ends everything that runs.
func (s *stage) strike() error {
	err := s.operator.Stop(stopTimeout)
	if s.cluster != nil {
		err = errors.Join(err, s.cluster.Stop())
	}
	return err
}

// joinNode registers a Node, as a kubelet does.
func (s *stage) joinNode(ctx context.Context, zone string, number int) (string, error) {
	name := fmt.Sprintf("%s-%02d", zone, number)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name,
		zoneLabel:            zone,
		rackLabel:            fmt.Sprintf("%s-r%d", zone, (number+1)/2),
	}}}
	if err := s.client.Create(ctx, node); err != nil {
		return "", fmt.Errorf("join node %s: %w", name, err)
	}
	node.Status = corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: nodeAddress(zone, number)},
			{Type: corev1.NodeHostName, Address: name},
		},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}},
	}
	if err := s.client.Status().Update(ctx, node); err != nil {
		return "", fmt.Errorf("join node %s: %w", name, err)
	}
	return name, nil
}

// Labels of nodes, which their kubelets may not set: zoneLabel is that of the
// example pools, rackLabel groups two nodes each.
const (
	zoneLabel = "node-restriction.kubernetes.io/zone"
	rackLabel = "node-restriction.kubernetes.io/rack"
)

var zones = []string{"beijing", "shanghai"}

func nodeAddress(zone string, number int) string {
	third := 1
	if zone == zones[1] {
		third = 2
	}
	return netip4(192, 168, byte(third+number/250*2), byte(number%250+1))
}

func netip4(a, b, c, d byte) string { return net.IPv4(a, b, c, d).String() }

// lineWriter says each line written to it.
type lineWriter func(string, ...any)

func (w lineWriter) Write(p []byte) (int, error) {
	w("%s", string(p[:max(0, len(p)-1)]))
	return len(p), nil
}
