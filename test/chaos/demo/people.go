package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Labels of nodes that their kubelets may not set: the example pools select by zoneLabel, and
// rackLabel groups two nodes each.
const (
	zoneLabel = "node-restriction.kubernetes.io/zone"
	rackLabel = "node-restriction.kubernetes.io/rack"
)

var zones = []string{"beijing", "shanghai"}

// setUp applies the examples and lets nodes join, half of them in each zone.
func (s *stage) setUp(ctx context.Context, o options) (names []string, err error) {
	for _, file := range []string{"pools.yaml", "pool-shanghai.yaml", "pool-overflow.yaml"} {
		if _, err := s.kubectl(ctx, "apply", "-f", filepath.Join(o.examples, file)); err != nil {
			return nil, err
		}
	}
	if err := s.hurry(ctx); err != nil {
		return nil, err
	}
	for i := range o.nodes {
		zone, number := i%2, i/2+1
		name := fmt.Sprintf("%s-%02d", zones[zone], number)
		address := fmt.Sprintf("192.168.%d.%d", 1+zone, number)
		if err := harness.JoinNode(ctx, s.client, name, address, map[string]string{
			corev1.LabelHostname: name, zoneLabel: zones[zone], rackLabel: fmt.Sprintf("%s-r%d", zones[zone], (number+1)/2),
		}); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// hurry lowers the pools' own reclaim.idleFor to fit the duration of the demo.
func (s *stage) hurry(ctx context.Context) error {
	pools := &v1alpha1.PodIPPoolList{}
	if err := s.client.List(ctx, pools); err != nil {
		return err
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		if pool.Spec.Reclaim.IdleFor == nil {
			continue
		}
		patch := client.MergeFrom(pool.DeepCopy())
		pool.Spec.Reclaim.IdleFor = ptr.To(v1alpha1.NewDuration(idleFor))
		if err := s.client.Patch(ctx, pool, patch); err != nil {
			return fmt.Errorf("change pool %s: %w", pool.Name, err)
		}
	}
	return nil
}

// rackPool returns a pool of two blocks, which takes precedence over the zone's pool on the
// nodes of one rack.
func rackPool() *v1alpha1.PodIPPool {
	return &v1alpha1.PodIPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "rack"},
		Spec: v1alpha1.PodIPPoolSpec{
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{rackLabel: zones[0] + "-r1"}},
			Priority:     10,
			IPv4: &v1alpha1.IPv4Ranges{
				CIDRs:     []v1alpha1.PoolCIDR{{CIDR: "100.71.0.0/26"}},
				BlockSize: 27,
			},
		},
	}
}

// appLabel groups the pods of an application.
const appLabel = "app"

// scale makes a number of pods of an application run on a node, bound to it as a scheduler
// would. It first reports the difference to before. It deletes pods evenly, so that the
// remaining addresses are scattered.
func (s *stage) scale(ctx context.Context, app, node string, count int, say func(by int)) error {
	list := &corev1.PodList{}
	if err := s.client.List(ctx, list, client.InNamespace(metav1.NamespaceDefault),
		client.MatchingLabels{appLabel: app}, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	say(count - len(pods))
	for range count - len(pods) {
		if err := s.client.Create(ctx, harness.BoundPod(node, app+"-"+node+"-", map[string]string{appLabel: app})); err != nil {
			return fmt.Errorf("create pod on %s: %w", node, err)
		}
	}
	kept := evenly(len(pods), min(count, len(pods)))
	for i := range pods {
		if kept[i] {
			continue
		}
		if err := s.client.Delete(ctx, &pods[i], client.GracePeriodSeconds(1)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete pod on %s: %w", node, err)
		}
	}
	return nil
}

// evenly picks count of the numbers below of, evenly spaced.
func evenly(of, count int) map[int]bool {
	picked := map[int]bool{}
	for i := range count {
		picked[i*of/count] = true
	}
	return picked
}

// scaleAll scales an application on several nodes concurrently.
func (s *story) scaleAll(ctx context.Context, app string, count int, nodes ...string) error {
	var all sync.WaitGroup
	failed := make(chan error, len(nodes))
	for _, node := range nodes {
		all.Go(func() {
			err := s.scale(ctx, app, node, count, func(by int) {
				if app != baseApp && by != 0 {
					s.event(bold, node, "%+d pods", by)
				}
			})
			if err != nil {
				failed <- err
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}
