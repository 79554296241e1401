package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// applyPools creates the PodIPPools of a file.
func (s *stage) applyPools(ctx context.Context, path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read example: %w", err)
	}
	var names []string
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		pool := &v1alpha1.PodIPPool{}
		if err := yaml.UnmarshalStrict(document, pool); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if err := s.client.Create(ctx, pool); err != nil {
			return nil, fmt.Errorf("apply %s: %w", path, err)
		}
		names = append(names, pool.Name)
	}
}

// hurry lowers a pool's own reclaim.idleFor to what the demo has time for.
func (s *stage) hurry(ctx context.Context, names []string) error {
	for _, name := range names {
		pool := &v1alpha1.PodIPPool{}
		if err := s.client.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
			return err
		}
		if pool.Spec.Reclaim.IdleFor == nil {
			continue
		}
		if own, err := pool.Spec.Reclaim.IdleFor.Parse(); err != nil || own <= idleFor {
			continue
		}
		patch := client.MergeFrom(pool.DeepCopy())
		pool.Spec.Reclaim.IdleFor = ptr.To(v1alpha1.NewDuration(idleFor.Truncate(time.Second)))
		if err := s.client.Patch(ctx, pool, patch); err != nil {
			return fmt.Errorf("change pool %s: %w", name, err)
		}
	}
	return nil
}

// rackPool is a pool of two blocks, which comes before the zone's on the nodes
// of one rack.
func rackPool() *v1alpha1.PodIPPool {
	return &v1alpha1.PodIPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "rack"},
		Spec: v1alpha1.PodIPPoolSpec{
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{rackLabel: zones[0] + "-r1"}},
			Priority:     10,
			IPv4: &v1alpha1.IPv4Ranges{
				CIDRs:     []v1alpha1.PoolCIDR{{CIDR: "100.167.0.0/26"}},
				BlockSize: 27,
			},
		},
	}
}

// addCIDR gives a pool more addresses.
func (s *stage) addCIDR(ctx context.Context, name, cidr string) error {
	pool := &v1alpha1.PodIPPool{}
	if err := s.client.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		return err
	}
	patch := client.MergeFrom(pool.DeepCopy())
	pool.Spec.IPv4.CIDRs = append(pool.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: cidr})
	return s.client.Patch(ctx, pool, patch)
}
