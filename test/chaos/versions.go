package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
)

// Faults of replicas of two versions.
const (
	leaderMoved  fault = "leader moved to the other version"
	standbyMoved fault = "standby moved to the other version"
	bothMoved    fault = "both operators moved to the other version"
)

// later is a field of a PodIPPool's spec that only a version after both knows.
const later = "later"

func (c *chaos) versionFaults() lane {
	return lane{gap: 3 * time.Second, work: 10 * time.Second, faults: []named{
		{leaderMoved, c.toLeader(c.move)}, {standbyMoved, c.toStandby(c.move)}, {bothMoved, c.toBoth(c.move)}, {leaderKilled, c.killLeader},
	}}
}

// program returns the operator's program of the tested version.
func (s settings) program() string { return filepath.Join(s.binDir, operatorBinary) }

// move ends a replica, as a rollout or a failing node does; the next process is of the other version.
func (c *chaos) move(o *operator, random *rand.Rand) error {
	to := c.program()
	if o.program() == to {
		to = c.older
	}
	o.setProgram(to)
	if random.IntN(2) == 0 {
		return o.kill(upTo(random, 3*time.Second))
	}
	_, err := o.signal(syscall.SIGTERM, upTo(random, 3*time.Second))
	return err
}

// upgradeAll moves the replicas of the older version to the tested one.
func (c *chaos) upgradeAll() error {
	var err error
	for _, o := range c.operator {
		if o.program() == c.program() {
			continue
		}
		o.setProgram(c.program())
		_, signalErr := o.signal(syscall.SIGTERM, 0)
		err = errors.Join(err, signalErr)
	}
	return err
}

func (o *operator) program() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.args[0]
}

func (o *operator) setProgram(path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.args[0] = path
}

// definitions returns the CRDs of a run.
func (c *chaos) definitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	crds, err := controlplane.DefaultCRDs()
	if !c.scenario.versions || err != nil {
		return crds, err
	}
	for _, crd := range crds {
		if crd.Spec.Names.Kind == "PodIPPool" {
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties[later] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		}
	}
	return crds, nil
}

// storeLater gives all pools a field that no replica knows.
func (c *chaos) storeLater(ctx context.Context) error {
	if !c.scenario.versions {
		return nil
	}
	for _, name := range c.network.pools {
		pool := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := c.client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"`+later+`":"kept"}}`))); err != nil {
			return fmt.Errorf("set a later version's field of pool %s: %w", name, err)
		}
	}
	return nil
}

// keptLater returns an error if a replica has dropped that field.
func (c *chaos) keptLater(ctx context.Context) error {
	if !c.scenario.versions {
		return nil
	}
	pools := &unstructured.UnstructuredList{}
	pools.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PodIPPoolList"))
	if err := c.client.List(ctx, pools); err != nil {
		return err
	}
	for _, pool := range pools.Items {
		if value, _, err := unstructured.NestedString(pool.Object, "spec", later); value != "kept" {
			return errors.Join(err, fmt.Errorf("%w: pool %s has lost its field spec.%s, which only a later version knows", errBroken, pool.GetName(), later))
		}
	}
	return nil
}
