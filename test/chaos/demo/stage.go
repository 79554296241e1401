package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/fleet"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// Names of the processes in addition to etcd and kube-apiserver.
const (
	operatorName = "cilium-pool-operator"
	agentsName   = "agents"
)

const (
	idleFor = 5 * time.Second
	// updateRate is the interval of agents' reports; real agents take 15 s.
	updateRate = 2 * time.Second
	// stopTimeout limits the exit of a process after SIGTERM; then it gets SIGKILL.
	stopTimeout = 10 * time.Second
)

// stage is the demo's cluster: a control plane, the operator, and a client.
type stage struct {
	mode        agent.IPAM
	binDir, dir string
	detached    bool
	cluster     *controlplane.Cluster
	client      client.WithWatch
	operator    *process.Process
	metrics     string // address of the operator's metrics
}

// build starts a control plane with its state in dir, and the operator. It removes the
// earlier contents of dir. On failure it leaves no process.
func build(ctx context.Context, o options, dir string, detached bool, p *printer) (_ *stage, err error) {
	s := &stage{mode: o.mode, detached: detached}
	if s.binDir, err = filepath.Abs(o.binDir); err != nil {
		return nil, err
	}
	if s.dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if old, err := controlplane.Attach(s.dir); err == nil {
		if etcd, api := old.PIDs(); etcd != 0 || api != 0 {
			return nil, fmt.Errorf("one runs already in %s", s.dir)
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return nil, err
	}
	s.cluster, err = controlplane.Start(ctx, controlplane.Options{Dir: s.dir, BinDir: s.binDir, Detached: detached, Log: p})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.connect(), s.startOperator()); err != nil {
		return nil, errors.Join(err, s.strike())
	}
	return s, nil
}

func (s *stage) connect() (err error) {
	s.client, err = harness.NewClient(s.cluster.Config())
	return err
}

// startOperator runs the operator as a separate process, with durations that let a scale-down
// complete within seconds.
func (s *stage) startOperator() error {
	if s.metrics == "" {
		port, err := controlplane.FreePort("127.0.0.1")
		if err != nil {
			return err
		}
		s.metrics = fmt.Sprintf("127.0.0.1:%d", port)
	}
	var err error
	s.operator, err = s.start(operatorName, filepath.Join(s.binDir, operatorName),
		"--kubeconfig="+filepath.Join(s.dir, "kubeconfig"),
		"--metrics-bind-address="+s.metrics, "--metrics-secure=false", "--health-probe-bind-address=0",
		"--leader-elect-lease-duration=10s",
		"--reclaim-idle-for="+idleFor.String(), "--ack-hold=2s", "--ack-timeout=10s",
		"--cooldown="+s.cooldown().String(), "--node-gone-cooldown="+max(10*time.Second, s.cooldown()).String(),
		"--agent-settle-time=2s", "--mode="+string(s.mode),
	)
	return err
}

// cooldown returns the time of a block's cooldown. Multi-pool mode allows no less.
func (s *stage) cooldown() time.Duration {
	if s.wholeBlocks() {
		return crd.MinMultiPoolCooldown
	}
	return 3 * time.Second
}

// wholeBlocks reports whether agents return blocks themselves, as in multi-pool mode.
func (s *stage) wholeBlocks() bool { return s.mode == agent.MultiPool }

// start starts a process of the demo that "down" finds again.
func (s *stage) start(name string, args ...string) (*process.Process, error) {
	return process.Start(process.Command{Name: name, Dir: s.dir, Args: args, PIDFile: true, Detached: s.detached})
}

// strike stops all processes.
func (s *stage) strike() error { return errors.Join(s.operator.Stop(stopTimeout), s.cluster.Stop()) }

// newFleet returns the machines of the cluster, with agents that report often.
func newFleet(cfg *rest.Config, o options) (*fleet.Fleet, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = whole.AgentWriter // the writer in managedFields
	c, err := harness.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	var families []agent.Family
	if o.ipv6 {
		families = []agent.Family{agent.IPv4, agent.IPv6}
	}
	return fleet.New(c, fleet.Options{Retry: time.Second, Agent: agent.Options{
		IPAM: o.mode, Families: families, UpdateRate: updateRate, PollInterval: time.Second, CrashBackoff: 2 * time.Second, Health: true,
	}}), nil
}

// kubectl runs kubectl and returns its output.
func (s *stage) kubectl(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--kubeconfig=" + filepath.Join(s.dir, "kubeconfig")}, args...)
	out, err := exec.CommandContext(ctx, filepath.Join(s.binDir, "kubectl"), args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %v: %w: %s", args[1:], err, out)
	}
	return string(out), nil
}
