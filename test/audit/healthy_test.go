package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/fleet"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

const (
	liveNodes = 4
	podsEach  = 12
)

// startOperator runs the operator with durations of seconds, until the test ends. If a flag is
// passed twice, the last one counts.
func (b *bed) startOperator(flags ...string) *process.Process {
	b.Helper()
	kubeconfig := b.TempDir() + "/kubeconfig"
	b.Must(b.cluster.WriteKubeconfig(kubeconfig))
	p, err := process.Start(process.Command{
		Name: "operator", Dir: b.TempDir(), Env: []string{"PATH=" + os.Getenv("PATH")},
		Args: append([]string{operator(b.TB), "--kubeconfig=" + kubeconfig, "--leader-elect=false",
			"--metrics-bind-address=0", "--health-probe-bind-address=0", "--reclaim-idle-for=300ms", "--ack-hold=200ms",
			"--ack-timeout=3s", "--cooldown=1s", "--node-gone-cooldown=2s", "--agent-settle-time=300ms"}, flags...),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(p.Stop(patience), p.Err()); err != nil {
			b.Errorf("the operator ended: %v\n%s", err, p.Log())
		}
	})
	return p
}

// startAgents runs light agents on new nodes, and their kubelet.
func (b *bed) startAgents() {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	machines := fleet.New(b.Client, fleet.Options{Agent: fleet.Quick(), Retry: 100 * time.Millisecond})
	var running sync.WaitGroup
	running.Go(func() { machines.Run(ctx) })
	b.Cleanup(func() { cancel(); running.Wait() })
	for i := range liveNodes {
		name := liveNode(i)
		b.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		machines.Boot(ctx, name)
	}
}

func liveNode(i int) string { return fmt.Sprintf("live-%d", i) }

// wave creates pods on every node, and waits until all have addresses. wave and endWave run in
// another goroutine than the test, and may not end it.
func (b *bed) wave(n int) error {
	labels := map[string]string{"wave": fmt.Sprint(n)}
	for i := range liveNodes * podsEach {
		if err := b.Client.Create(b.Context(), harness.BoundPod(liveNode(i%liveNodes), fmt.Sprintf("wave-%d-%d", n, i), labels)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	return harness.Soon(ctx, 20*time.Millisecond, func(context.Context) error {
		list := &corev1.PodList{}
		if err := b.Client.List(b.Context(), list, client.MatchingLabels(labels)); err != nil {
			return err
		}
		for i := range list.Items {
			if len(list.Items[i].Status.PodIPs) == 0 {
				return errors.New(list.Items[i].Name + " has no address")
			}
		}
		return nil
	})
}

func (b *bed) endWave(n int) error {
	return b.Client.DeleteAllOf(b.Context(), &corev1.Pod{}, client.InNamespace(metav1.NamespaceDefault),
		client.MatchingLabels{"wave": fmt.Sprint(n)})
}

// A cluster that grows, shrinks, drains and idles under a real operator has no finding at any
// moment.
func TestLiveClusterHasNoFindings(t *testing.T) {
	b := newBed(t)
	p := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "live"}}
	p.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 29, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.20.0.0/22"}}}
	b.Create(p)
	b.startAgents()
	b.startOperator()
	harness.Must(t, b.wave(0))

	const waves = 4
	finished := make(chan error, 1)
	go func() {
		for n := range waves {
			if err := errors.Join(b.wave(n+1), b.endWave(n+1)); err != nil {
				finished <- err
				return
			}
		}
		finished <- nil
	}()
	checks, looks := 0, 0
	for moving := true; moving; checks++ {
		select {
		case err := <-finished:
			if err != nil {
				t.Error(err)
			}
			moving = false // and once more
		default:
		}
		// On a busy machine the steps of a handshake are more than ten seconds apart.
		o := b.check("--every=30s", "-o", "json", "--stuck-after=1m")
		r := b.report(o)
		looks += r.Looks
		if o.code != 0 || len(r.Findings) > 0 {
			t.Errorf("exit code %d:\n%s%s", o.code, o.stdout, o.stderr)
		}
		if r.Looked.Nodes != liveNodes || r.Looked.Agents != liveNodes || r.Looked.Blocks < liveNodes || r.Looked.Addresses < liveNodes*podsEach {
			t.Errorf("looked at %+v", r.Looked)
		}
	}
	t.Logf("%d checks took %d looks", checks, looks)

	o := b.check("--every=3s")
	if o.code != 0 || !strings.HasPrefix(o.stdout, "0 errors, 0 warnings. Looked ") {
		t.Errorf("exit code %d:\n%s%s", o.code, o.stdout, o.stderr)
	}
}
