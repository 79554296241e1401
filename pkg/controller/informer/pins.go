package informer

import (
	"net/netip"
	"strings"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// queuePinsIn queues the pins that share addresses with a CIDR, and their nodes.
func queuePinsIn(f *Feed, cidr netip.Prefix) {
	for _, pin := range f.Ledger.PinsIn(cidr) {
		queueOwner(f, pin.Owner.Node)
		f.add(PinQueue, crd.BlockName(pin.CIDR), 0)
	}
}

// queueOwner queues a node, or the node of a pod, as its pins have changed.
func queueOwner(f *Feed, owner string) {
	if strings.Contains(owner, "/") {
		owner = f.Pods.NodeOf(owner)
	}
	f.QueueNode(owner)
}

// queuePodPool queues the Cilium pool of the pod that a pin is for, if it is for one.
func queuePodPool(f *Feed, pin crd.Pin) {
	if pin.Pod != "" && f.CiliumPools != nil {
		f.add(CiliumPoolQueue, f.CiliumPools.OfPod(pin.Pod, f.Ledger), 0)
	}
}

// queueKeeper has pins made and deleted for all pods, if a pool keeps addresses for any, or has done so.
func queueKeeper(f *Feed) {
	if f.Mode.ManyPools() && (len(f.Pools.WithPodAddresses()) > 0 || f.Ledger.PinsPods()) {
		f.add(KeeperQueue, allPods, assignDelay)
	}
}

func pinHandler(f *Feed, logger logr.Logger) toolscache.ResourceEventHandler {
	read := func(obj *v1alpha1.PodIPPin) (crd.Pin, bool) {
		pin, err := crd.PinFrom(obj)
		if err != nil {
			logger.Error(err, "a pin cannot be read; fix or delete it", "pin", obj.Name)
		}
		return pin, err == nil
	}
	return handle(
		func(obj *v1alpha1.PodIPPin) {
			if pin, ok := read(obj); ok {
				if before := f.Ledger.SetPin(pin); before != pin.For() {
					queueOwner(f, before)
					queueOwner(f, pin.For())
					queuePodPool(f, pin)
				}
				f.add(PinQueue, obj.Name, 0)
				queueKeeper(f)
			}
		},
		func(obj *v1alpha1.PodIPPin) {
			if pin, ok := read(obj); ok {
				f.Ledger.RemovePin(pin.CIDR)
				queueOwner(f, pin.For())
				queuePodPool(f, pin)
				queueKeeper(f)
			}
		})
}
