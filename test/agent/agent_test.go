package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

var shared cptest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// bed is a node with an agent on the real API server.
type bed struct {
	t     *testing.T
	c     client.WithWatch
	hub   *Hub
	agent *Agent
	ctx   context.Context

	mu     sync.Mutex
	events []Event
}

// newBed creates the Node, runs hub and agent until the test ends, and does not wait.
func newBed(t *testing.T, opts Options) *bed {
	c, err := harness.NewClient(shared.Cluster(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	b := &bed{t: t, c: c, ctx: ctx}
	opts.NodeName = harness.UniqueName(t)
	opts.UpdateRate, opts.PollInterval, opts.CrashBackoff = 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond
	opts.OnEvent = func(e Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, e)
	}
	hub := NewHub(c)
	b.hub, b.agent = hub, New(c, hub, opts)
	b.makeNode()
	var background sync.WaitGroup
	background.Go(func() { hub.Run(ctx) })
	background.Go(func() { b.agent.Run(ctx) })
	t.Cleanup(func() { cancel(); background.Wait() })
	return b
}

func (b *bed) makeNode() {
	b.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        b.agent.Name(),
		Labels:      map[string]string{"zone": "a"},
		Annotations: map[string]string{"network.cilium.io/x": "y", "other": "z"},
	}}
	harness.Must(b.t, b.c.Create(b.ctx, node))
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
		{Type: corev1.NodeInternalIP, Address: "192.0.2.2"},
		{Type: corev1.NodeHostName, Address: "host"},
	}
	harness.Must(b.t, b.c.Status().Update(b.ctx, node))
}

// eventually waits for ok.
func (b *bed) eventually(what string, ok func() bool) {
	b.t.Helper()
	harness.Eventually(b.t, what, func() error {
		if !ok() {
			return fmt.Errorf("CiliumNode: %+v", b.get().Status.IPAM)
		}
		return nil
	})
}

// shown waits until the hub has received the current CiliumNode.
func (b *bed) shown() {
	b.t.Helper()
	b.eventually("the hub has shown the CiliumNode", func() bool {
		version := b.get().ResourceVersion
		b.hub.mu.Lock()
		defer b.hub.mu.Unlock()
		latest := b.hub.latest[b.agent.Name()]
		return latest != nil && latest.ResourceVersion == version
	})
}

func (b *bed) get() *ciliumv2.CiliumNode {
	cn := &ciliumv2.CiliumNode{}
	if err := b.c.Get(context.WithoutCancel(b.ctx), types.NamespacedName{Name: b.agent.Name()}, cn); client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	return cn
}

func (b *bed) patch(status bool, format string, args ...any) {
	b.t.Helper()
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: b.agent.Name()}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
	write := b.c.Patch
	if status {
		write = func(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
			return b.c.Status().Patch(ctx, obj, patch)
		}
	}
	harness.Must(b.t, write(b.ctx, cn, patch))
}

func (b *bed) owners() []string {
	var owners []string
	for _, ip := range b.get().Status.IPAM.Used {
		owners = append(owners, ip.Owner)
	}
	slices.Sort(owners)
	return owners
}

func (b *bed) waitReady() {
	b.t.Helper()
	harness.Must(b.t, b.agent.WaitReady(b.ctx))
}

func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func (b *bed) add(name string) netip.Addr {
	b.t.Helper()
	v4, _, err := b.agent.Add(b.ctx, podNamed(name))
	if err != nil {
		b.t.Fatal(err)
	}
	return v4
}

const fourAddresses = `{"spec":{"ipam":{"pool":{"10.0.0.1":{},"10.0.0.2":{},"10.0.0.3":{},"10.0.0.4":{}},"podCIDRs":["10.0.0.0/29"]}}}`

func TestFirstStart(t *testing.T) {
	b := newBed(t, Options{})
	b.eventually("CiliumNode is made", func() bool { return b.get().UID != "" })
	cn := b.get()
	if len(cn.OwnerReferences) != 1 || cn.OwnerReferences[0].Kind != "Node" || cn.OwnerReferences[0].UID == "" {
		t.Errorf("owner references %v", cn.OwnerReferences)
	}
	if diff := cmp.Diff(map[string]string{"zone": "a"}, cn.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"network.cilium.io/x": "y"}, cn.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if _, _, err := b.agent.Add(b.ctx, podNamed("early")); !errors.Is(err, ErrNotReady) {
		t.Errorf("ADD before there is a pool: %v", err)
	}

	b.patch(false, fourAddresses)
	b.waitReady()
	b.eventually("router is reported", func() bool { return slices.Equal(b.owners(), []string{"router"}) })
	cn = b.get()
	var router string
	for ip := range cn.Status.IPAM.Used {
		router = ip
	}
	want := []ciliumv2.NodeAddress{{Type: "InternalIP", IP: "192.0.2.1"}, {Type: "CiliumInternalIP", IP: router}}
	if diff := cmp.Diff(want, cn.Spec.Addresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if len(cn.Spec.IPAM.Pool) != 4 || len(cn.Spec.IPAM.PodCIDRs) != 1 {
		t.Errorf("spec is %+v", cn.Spec)
	}
}

// An agent that lacks addresses of a family fails again and again, which its pod shows, as
// kubelet would, until it has some.
func TestFailedStart(t *testing.T) {
	b := newBed(t, Options{Families: []Family{IPv4, IPv6}, Pod: true})
	b.eventually("CiliumNode is made", func() bool { return b.get().UID != "" })
	lastEnd := func() *corev1.ContainerStateTerminated {
		pod := &corev1.Pod{}
		harness.Must(t, b.c.Get(b.ctx, types.NamespacedName{Namespace: agentNamespace, Name: b.agent.PodName()}, pod))
		return pod.Status.ContainerStatuses[0].LastTerminationState.Terminated
	}
	if end := lastEnd(); end != nil {
		t.Errorf("its first run follows %v", end)
	}

	b.patch(false, fourAddresses)
	b.eventually("its pod shows a run that failed", func() bool { end := lastEnd(); return end != nil && end.ExitCode != 0 })
	b.patch(false, `{"spec":{"ipam":{"pool":{"fd00::1":{},"fd00::2":{}}}}}`)
	b.waitReady()
	harness.Must(t, b.agent.Restart(b.ctx))
	b.eventually("it was stopped, and did not fail", func() bool { return lastEnd() == nil })
}

func TestHandshakeAndRestart(t *testing.T) {
	b := newBed(t, Options{})
	b.eventually("CiliumNode is made", func() bool { return b.get().UID != "" })
	b.patch(false, fourAddresses)
	b.waitReady()
	a, kept := b.add("a"), b.add("kept")
	b.eventually("use is reported", func() bool {
		return slices.Equal(b.owners(), []string{"default/a", "default/kept", "router"})
	})
	b.patch(true, `{"status":{"ipam":{"release-ips":{%q:"marked-for-release","10.0.0.9":"marked-for-release"}}}}`, a)
	b.eventually("refused", func() bool {
		return cmp.Equal(b.get().Status.IPAM.ReleaseIPs,
			map[string]ipamtypes.IPReleaseStatus{a.String(): "do-not-release", "10.0.0.9": "do-not-release"})
	})

	// An address in use leaves the pool: its pod loses its endpoint when the
	// agent restarts.
	b.patch(false, `{"spec":{"ipam":{"pool":{%q:null}}}}`, a)
	b.shown()
	harness.Must(t, b.agent.Restart(b.ctx))
	b.eventually("restored", func() bool {
		return slices.Equal(b.owners(), []string{"default/kept [restored]", "router"})
	})
	if got := b.agent.Endpoints(); len(got) != 1 || got[types.NamespacedName{Namespace: "default", Name: "kept"}][0] != kept {
		t.Errorf("endpoints %v", got)
	}
	b.mu.Lock()
	dropped := slices.DeleteFunc(slices.Clone(b.events), func(e Event) bool { return e.Kind != EndpointDropped })
	b.mu.Unlock()
	if len(dropped) != 1 || dropped[0].Pod.Name != "a" || !errors.Is(dropped[0].Err, ErrNotInPool) {
		t.Errorf("dropped %v", dropped)
	}
}

func TestCiliumNodeDeleted(t *testing.T) {
	b := newBed(t, Options{})
	b.eventually("CiliumNode is made", func() bool { return b.get().UID != "" })
	b.patch(false, fourAddresses)
	b.waitReady()
	harness.Must(t, b.c.Delete(b.ctx, b.get()))
	b.eventually("no more addresses", func() bool {
		_, _, err := b.agent.Add(b.ctx, podNamed("a"))
		harness.Must(t, b.agent.Del(b.ctx, "default", "a"))
		return errors.Is(err, ErrNoCiliumNode)
	})
}

func TestPodsComeAndGo(t *testing.T) {
	b := newBed(t, Options{Families: []Family{IPv4, IPv6}, Health: true, Pod: true})
	kubelet := NewKubelet(b.c, KubeletOptions{Retry: 20 * time.Millisecond})
	kubelet.Attach(b.agent)
	var background sync.WaitGroup
	ctx, cancel := context.WithCancel(b.ctx)
	background.Go(func() { kubelet.Run(ctx) })
	t.Cleanup(func() { cancel(); background.Wait() })
	b.eventually("CiliumNode is made", func() bool { return b.get().UID != "" })
	b.patch(false, `{"spec":{"ipam":{"pool":{"10.0.0.1":{},"10.0.0.2":{},"10.0.0.3":{},"fd00::1":{},"fd00::2":{},"fd00::3":{}}}}}`)

	agentPod := b.pod(agentNamespace, b.agent.PodName())
	b.eventually("agent's pod is ready", func() bool { agentPod = b.pod(agentNamespace, b.agent.PodName()); return ready(agentPod) })
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0"},
		Spec:       corev1.PodSpec{NodeName: b.agent.Name(), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	harness.Must(t, b.c.Create(b.ctx, pod))
	b.eventually("pod is ready", func() bool { return ready(b.pod("default", "web-0")) })
	endpoint := b.agent.Endpoints()[client.ObjectKeyFromObject(pod)]
	for i, ip := range b.pod("default", "web-0").Status.PodIPs {
		if ip.IP != endpoint[i].String() {
			t.Errorf("podIPs[%d] is %s, endpoint has %v", i, ip.IP, endpoint)
		}
	}
	want := []string{"default/web-0", "default/web-0", "health", "health", "router", "router"}
	b.eventually("use is reported", func() bool { return slices.Equal(b.owners(), want) })

	harness.Must(t, b.agent.Restart(b.ctx))
	b.eventually("agent's pod is ready again", func() bool {
		again := b.pod(agentNamespace, b.agent.PodName())
		return ready(again) && containerID(again) != containerID(agentPod)
	})
	harness.Must(t, b.c.Delete(b.ctx, pod))
	b.eventually("pod is gone", func() bool { return b.pod("default", "web-0").UID == "" })
	b.eventually("its addresses are back", func() bool { return len(b.owners()) == 4 })
}

func (b *bed) pod(namespace, name string) *corev1.Pod {
	pod := &corev1.Pod{}
	if err := b.c.Get(context.WithoutCancel(b.ctx), types.NamespacedName{Namespace: namespace, Name: name}, pod); client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	return pod
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func containerID(pod *corev1.Pod) string {
	if len(pod.Status.ContainerStatuses) == 0 {
		return ""
	}
	return pod.Status.ContainerStatuses[0].ContainerID
}
