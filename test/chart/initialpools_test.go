package chart

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const initialPools = release + "-initial-pools"

// initialValues let the next operator become leader soon after one was killed.
const initialValues = installValues + `
leaderElection: {leaseDuration: 3s}
`

func (b *bed) poolNamed(name string) (*v1alpha1.PodIPPool, error) {
	p := &v1alpha1.PodIPPool{}
	return p, b.Client.Get(b.Context(), client.ObjectKey{Name: name}, p)
}

// awaitPool waits until the operator has created a pool of the values.
func (b *bed) awaitPool(name string) *v1alpha1.PodIPPool {
	b.Helper()
	b.Eventually("pool "+name+" is created and recorded", func() error {
		if _, err := b.poolNamed(name); err != nil {
			return err
		}
		config := &corev1.ConfigMap{}
		b.Read(config, namespace, initialPools)
		if recorded := strings.Fields(config.Annotations[v1alpha1.CreatedPoolsAnnotation]); !slices.Contains(recorded, name) {
			return fmt.Errorf("recorded are %v", recorded)
		}
		return nil
	})
	pool, err := b.poolNamed(name)
	if err != nil {
		b.Fatal(err)
	}
	return pool
}

// gone returns an error if a pool still exists.
func (b *bed) gone(name string) error {
	_, err := b.poolNamed(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(err, fmt.Errorf("pool %s is there", name))
}

// kill kills the operator with SIGKILL.
func (p *running) kill() {
	p.b.Helper()
	harness.Must(p.b, p.Kill())
}

// addInitialPool writes a pool into the ConfigMap.
func (b *bed) addInitialPool(name, spec string) {
	b.Helper()
	config := &corev1.ConfigMap{}
	b.Read(config, namespace, initialPools)
	config.Data[name] = fmt.Sprintf("apiVersion: cilium-pool.io/v1alpha1\nkind: PodIPPool\nmetadata: {name: %s}\nspec: %s\n", name, spec)
	b.Must(b.Client.Update(b.Context(), config))
}

// Pools of the values exist even if the first installation timed out. The operator creates
// them, once, and Helm owns them from the next upgrade on.
func TestPoolsOfAFirstInstallation(t *testing.T) { poolsOfAFirstInstallation(newBed(t, helm4)) }

func poolsOfAFirstInstallation(b *bed) {
	metrics, health := freePorts(b.T)
	values := []string{"-f", writeFile(b.T, fmt.Sprintf(initialValues, metrics, health)), "--wait", "--timeout"}
	second := "--set-json=pools.shanghai={\"ipv4\":{\"blockSize\":28,\"cidrs\":[{\"cidr\":\"100.68.0.0/26\"}]}}"
	// No Deployment controller runs: no pod becomes ready.
	if _, err := b.tryHelm(append([]string{"install", release, chart, second}, append(values, "3s")...)...); err == nil {
		b.Fatal("an installation whose Deployment is never ready succeeded")
	}
	op := b.startOperator("--metrics-bind-address=0")
	beijing := b.awaitPool("beijing")
	b.Delete(b.awaitPool("shanghai"))
	b.Eventually("a pool that an administrator deletes goes", func() error { return b.gone("shanghai") })
	op.kill()

	// Once the last pool of the ConfigMap is created, all earlier ones have been processed.
	b.addInitialPool("wrong", "{ipv4: {blockSizes: 28, blockSize: 28, cidrs: [{cidr: 100.69.0.0/26}]}}")
	b.addInitialPool("zunyi", "{ipv4: {blockSize: 28, cidrs: [{cidr: 100.70.0.0/26}]}}")
	op = b.startOperator("--metrics-bind-address=0")
	b.awaitPool("zunyi")
	if err := b.gone("shanghai"); err != nil {
		b.Errorf("a restart of the operator brought a deleted pool back: %v", err)
	}
	b.Eventually("a pool with an unknown field is reported", func() error { return b.reported("wrong", "pools.wrong in the chart's values", "blockSizes") })

	go b.playDeploymentController(b.Context())
	upgrade := func() {
		b.Helper()
		b.helm(append([]string{"upgrade", release, chart, "--set=pools.beijing.priority=5"}, append(values, "2m")...)...)
	}
	upgrade()
	if b.major == helm3 {
		upgrade()
	}
	pool := b.samePool("the first upgrade", beijing)
	if pool.Spec.Priority != 5 || !slices.Contains(pool.Finalizers, v1alpha1.Finalizer) {
		b.Errorf("after the upgrade: priority %d, finalizers %v", pool.Spec.Priority, pool.Finalizers)
	}
	err := b.Client.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: initialPools}, &corev1.ConfigMap{})
	if !apierrors.IsNotFound(err) {
		b.Errorf("the ConfigMap of the first installation is still there: %v", err)
	}
	op.stop()
}

// reported looks for the event about a refused pool.
func (b *bed) reported(pool string, parts ...string) error {
	list := &eventsv1.EventList{}
	if err := b.Client.List(b.Context(), list); err != nil {
		return err
	}
	for _, e := range list.Items {
		if e.Reason == event.ReasonInitialPoolRefused && e.Regarding.Name == pool {
			wantAll(b.T, e.Note, parts...)
			return nil
		}
	}
	return fmt.Errorf("no %s among %d events", event.ReasonInitialPoolRefused, len(list.Items))
}
