package informer

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// routeDelay batches the blocks that a node gets at once: the reconcile that publishes their addresses
// usually writes their routes before it is over.
const routeDelay = 500 * time.Millisecond

func frrConfigurationStore(f *Feed) Store {
	moved := func(v *frrconfig.View, templates bool) {
		queueRoutes(f, v.Node)
		for _, other := range f.Routes.SameHostname(v.Node) {
			queueRoutes(f, other)
		}
		if templates {
			allRoutes(f)
		}
	}
	return &records[*unstructured.Unstructured, *frrconfig.View]{
		read:    frrconfig.Read,
		there:   func(v *frrconfig.View) { moved(v, f.Routes.Set(v)) },
		gone:    func(v *frrconfig.View) { moved(v, f.Routes.Delete(v)) },
		missing: anyVersion(f.Routes.Missing),
	}
}

// queueRoutes has the routes of a node written.
func queueRoutes(f *Feed, node string) {
	if f.Routes != nil {
		f.add(RouteQueue, node, routeDelay)
	}
}

// queueCooling does so if a block of the node cools down: its route stays as long as its CiliumNode
// lists it.
func queueCooling(f *Feed, node string) {
	if f.Routes != nil && slices.ContainsFunc(f.Ledger.NodeBlocks(node), func(b crd.Block) bool { return b.Phase == ipalloc.CoolingDown }) {
		queueRoutes(f, node)
	}
}

func allRoutes(f *Feed) {
	if f.Routes == nil {
		return
	}
	for _, node := range append(f.Ledger.Nodes(), f.Routes.Nodes()...) {
		f.add(RouteQueue, node, 0)
	}
}

// hostnameMoved records the hostname of a Node; nil: it is gone.
func hostnameMoved(f *Feed, name string, node *corev1.Node) {
	if f.Routes == nil {
		return
	}
	for _, other := range f.Routes.SetNode(name, node) {
		queueRoutes(f, other)
	}
}
