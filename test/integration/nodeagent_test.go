package integration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/nodeagent"
	"github.com/cilium-pool/cilium-pool-operator/pkg/nodeipam"
)

// delegated is a node with Cilium's agent in mode delegated-plugin, the node agent, and a kubelet whose runtime calls the
// CNI plugin.
type delegated struct {
	*env
	node  string
	store *nodeipam.Store
	agent *nodeagent.Agent
	pods  map[types.UID]bool // with an address
}

// delegatedNode creates a Node and runs it until the test ends.
func (e *env) delegatedNode(name string) *delegated {
	e.TB.Helper()
	e.bareNode(name, nil)
	store, err := nodeipam.Open(filepath.Join(e.TB.TempDir(), name))
	e.Must(err)
	d := &delegated{env: e, node: name, store: store, pods: map[types.UID]bool{}}
	d.agent = &nodeagent.Agent{Node: name, Store: store, Watched: ofNode{e.Client, name}, Live: e.Client, Client: e.Client, ReportEvery: 200 * time.Millisecond, Now: time.Now, Restart: func() { e.TB.Error("the node agent restarts") }}
	e.Eventually("Cilium's agent starts on "+name, func() error {
		cn, err := e.ciliumNode(name)
		if err != nil {
			return err
		}
		cn.Spec.BootID = d.store.Boot
		cn.Spec.Addresses = append(cn.Spec.Addresses, ciliumv2.NodeAddress{Type: "CiliumInternalIP", IP: "169.254.23.0"})
		return e.Client.Update(e.Ctx, cn)
	})
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(e.Ctx)
	e.TB.Cleanup(func() {
		stop()
		running.Wait()
	})
	for _, step := range []func(context.Context) error{d.reconcile, d.kubelet} {
		act := func(ctx context.Context) {
			if err := step(ctx); err != nil && ctx.Err() == nil {
				e.TB.Errorf("node %s: %v", name, err)
			}
		}
		running.Go(func() { wait.UntilWithContext(ctx, act, 20*time.Millisecond) })
	}
	return d
}

// ofNode reads the pods of one node, as the node agent's watch does.
type ofNode struct {
	client.Client
	node string
}

func (c ofNode) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if _, ok := list.(*corev1.PodList); ok {
		return c.Client.List(ctx, list, client.MatchingFields{"spec.nodeName": c.node})
	}
	return c.Client.List(ctx, list)
}

func (d *delegated) reconcile(ctx context.Context) error {
	_, err := d.agent.Reconcile(ctx, ctrl.Request{})
	return err
}

// kubelet starts pods that have no address, and ends those that are deleted.
func (d *delegated) kubelet(ctx context.Context) error {
	list := &corev1.PodList{}
	if err := d.agent.Watched.List(ctx, list); err != nil {
		return err
	}
	bound := map[types.UID]bool{}
	var ended []*corev1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.DeletionTimestamp != nil {
			ended = append(ended, pod)
			continue
		}
		bound[pod.UID] = true
		if d.pods[pod.UID] {
			continue
		}
		addrs, err := d.store.Assign(ctx, nodeipam.Owner{Attachment: nodeipam.Attachment{Container: string(pod.UID)}, Pod: pod.Namespace + "/" + pod.Name, UID: string(pod.UID)})
		var none *nodeipam.NoAddressError
		if errors.As(err, &none) || errors.Is(err, nodeipam.ErrNotReady) {
			continue
		}
		if err != nil {
			return err
		}
		d.pods[pod.UID] = true
		pod.Status.PodIP = addrs[0].String()
		pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
		if err := d.Client.Status().Update(ctx, pod); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	for uid := range d.pods {
		if !bound[uid] {
			if err := d.store.Release(ctx, nodeipam.Attachment{Container: string(uid)}); err != nil {
				return err
			}
			delete(d.pods, uid)
		}
	}
	for _, pod := range ended {
		if err := d.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// in returns how many addresses of a block pods have.
func (d *delegated) in(cidr netip.Prefix) int {
	taken, err := d.store.Assignments()
	d.Must(err)
	n := 0
	for addr := range taken {
		if cidr.Contains(addr) {
			n++
		}
	}
	return n
}

// A node agent serves pods of as many blocks as they need, and the node returns them. A drain closes a block to new pods,
// its replacement comes first, and it leaves with its last pod.
func TestNodeAgent(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.Mode = ciliumnode.DelegatedPlugin
	e.start(s)
	e.pool("all", nil, "10.1.0.0/24")
	d := e.delegatedNode("n1")
	e.isAssigned("n1", 1)
	e.load("n1", "burst", 80)
	e.isAssigned("n1", 4) // 80 are at most 80 %
	e.eventuallyOn("the CiliumNode shows all addresses in use", "n1", func(cn *ciliumv2.CiliumNode) error {
		if n := len(cn.Status.IPAM.Used); n != 80 {
			return fmt.Errorf("it shows %d", n)
		}
		return nil
	})
	e.DropPods()
	e.awaitBlocks("n1 returns the blocks that it does not need", "n1", 1, 1, nil)

	e.load("n1", "stays", 5)
	first := e.Blocks("n1")[0]
	cidr := netip.MustParsePrefix(first.Spec.CIDR)
	e.Must(e.Client.Patch(e.Ctx, &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: first.Name}}, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"drain":true}}`))))
	e.eventuallyOn("the block is closed", "n1", func(cn *ciliumv2.CiliumNode) error {
		blocks := ciliumnode.NodeBlocks(cn)
		if !slices.ContainsFunc(blocks, func(b ciliumnode.NodeBlock) bool { return b.CIDR == cidr && b.Closed }) || len(blocks) != 2 {
			return fmt.Errorf("it lists %v", blocks)
		}
		return nil
	})
	e.Eventually("the node agent has seen that", func() error {
		blocks, err := d.store.Node()
		if err == nil && !slices.ContainsFunc(blocks.Blocks, func(b nodeipam.Block) bool { return b.CIDR == cidr && b.Closed }) {
			err = fmt.Errorf("it assigns from %v", blocks.Blocks)
		}
		return err
	})
	e.load("n1", "later", 5)
	if n := d.in(cidr); n != 5 {
		t.Errorf("%d addresses of the closed block are in use, want 5", n)
	}
	e.DeletePods("stays", nil)
	e.awaitBlocks("the drained block is gone", "n1", 1, 1, func(b v1alpha1.PodIPBlock) bool { return b.Name != first.Name })
	e.awaitBlocks("the drained block is gone", "n1", 0, 0, func(b v1alpha1.PodIPBlock) bool { return b.Name == first.Name })
	e.running("later", 5)
}
