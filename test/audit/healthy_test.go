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

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

const (
	liveNodes = 4
	podsEach  = 12
)

// startOperator runs the operator with waits of seconds, until the test ends. Of
// flags given twice the last counts.
func (b *bed) startOperator(flags ...string) {
	b.Helper()
	kubeconfig := b.TempDir() + "/kubeconfig"
	if err := shared.Cluster(b).WriteKubeconfig(kubeconfig); err != nil {
		b.Fatal(err)
	}
	p, err := process.Start(process.Command{
		Name: "operator", Dir: b.TempDir(), Env: []string{"PATH=" + os.Getenv("PATH")},
		Args: append([]string{operator(b.T), "--kubeconfig=" + kubeconfig, "--leader-elect=false",
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
}

// startAgents runs light agents on new nodes, and their kubelet.
func (b *bed) startAgents() {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	b.Cleanup(func() { cancel(); running.Wait() })
	hub := agent.NewHub(b.client)
	kubelet := agent.NewKubelet(b.client, agent.KubeletOptions{Retry: 100 * time.Millisecond})
	running.Go(func() { hub.Run(ctx) })
	running.Go(func() { kubelet.Run(ctx) })
	for i := range liveNodes {
		name := fmt.Sprintf("live-%d", i)
		b.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		a := agent.New(b.client, hub, agent.Options{
			NodeName: name, Pod: true, Seed: uint64(i) + 1,
			UpdateRate: 200 * time.Millisecond, PollInterval: 50 * time.Millisecond, CrashBackoff: 100 * time.Millisecond,
		})
		kubelet.Attach(a)
		running.Go(func() { a.Run(ctx) })
	}
}

func (b *bed) wave(n int) error {
	for i := range liveNodes * podsEach {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("wave-%d-%d", n, i), Labels: map[string]string{"wave": fmt.Sprint(n)}},
			Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("live-%d", i%liveNodes), Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		if err := b.client.Create(b.Context(), p); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	return harness.Until(ctx, 20*time.Millisecond, func(context.Context) error {
		list := &corev1.PodList{}
		if err := b.client.List(b.Context(), list, client.MatchingLabels{"wave": fmt.Sprint(n)}); err != nil {
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
	list := &corev1.PodList{}
	if err := b.client.List(b.Context(), list, client.MatchingLabels{"wave": fmt.Sprint(n)}); err != nil {
		return err
	}
	for i := range list.Items {
		if err := b.client.Delete(b.Context(), &list.Items[i]); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// A cluster that grows, shrinks, drains and rests under a real operator gives no
// finding, at any moment.
func TestLiveClusterHasNoFindings(t *testing.T) {
	b := newBed(t)
	p := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "live"}}
	p.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 29, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.20.0.0/22"}}}
	b.create(p)
	b.startAgents()
	b.startOperator()
	if err := b.wave(0); err != nil {
		t.Fatal(err)
	}

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
		o := b.check("--again=3s", "-o", "json", "--stuck-after=1m")
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

	o := b.check("--again=3s")
	if o.code != 0 || !strings.HasPrefix(o.stdout, "0 errors, 0 warnings. Looked ") {
		t.Errorf("exit code %d:\n%s%s", o.code, o.stdout, o.stderr)
	}
}
