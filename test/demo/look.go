package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// sight is what the API server says at one moment.
type sight struct {
	nodes []nodeSight
	pools []v1alpha1.PodIPPool
	// waiting are the pods that have no address.
	pods, waiting int
}

type nodeSight struct {
	name, zone string
	exists     bool // its CiliumNode
	// blocks in service, and those on their way back.
	blocks, leaving []string
	// fromPools are the pools of the blocks in service.
	fromPools                []string
	addresses, used, running int
}

func (s *stage) look(ctx context.Context) (*sight, error) {
	nodes, cilium, pods := &corev1.NodeList{}, &ciliumv2.CiliumNodeList{}, &corev1.PodList{}
	blocks, pools := &v1alpha1.PodIPBlockList{}, &v1alpha1.PodIPPoolList{}
	for _, list := range []client.ObjectList{nodes, cilium, pods, blocks, pools} {
		if err := s.client.List(ctx, list); err != nil {
			return nil, fmt.Errorf("look at the cluster: %w", err)
		}
	}
	seen := &sight{pools: pools.Items}
	index := map[string]*nodeSight{}
	seen.nodes = make([]nodeSight, len(nodes.Items))
	for i, node := range nodes.Items {
		seen.nodes[i] = nodeSight{name: node.Name, zone: node.Labels[zoneLabel]}
		index[node.Name] = &seen.nodes[i]
	}
	for _, cn := range cilium.Items {
		if n := index[cn.Name]; n != nil {
			n.exists, n.addresses, n.used = true, len(cn.Spec.IPAM.Pool), len(cn.Status.IPAM.Used)
		}
	}
	for _, b := range blocks.Items {
		if n := index[b.Spec.NodeName]; n != nil {
			n.addBlock(b)
		}
	}
	for _, pod := range pods.Items {
		if pod.Spec.HostNetwork {
			continue
		}
		seen.pods++
		if pod.Status.PodIP == "" {
			seen.waiting++
		} else if n := index[pod.Spec.NodeName]; n != nil {
			n.running++
		}
	}
	slices.SortFunc(seen.nodes, func(a, b nodeSight) int { return strings.Compare(a.name, b.name) })
	return seen, nil
}

func (n *nodeSight) addBlock(b v1alpha1.PodIPBlock) {
	if len(b.Status.Conditions) > 0 || b.DeletionTimestamp != nil {
		n.leaving = append(n.leaving, b.Spec.CIDR)
		return
	}
	n.blocks = append(n.blocks, b.Spec.CIDR)
	n.fromPools = append(n.fromPools, b.Spec.PoolName)
}

func (s *sight) node(name string) nodeSight {
	i := slices.IndexFunc(s.nodes, func(n nodeSight) bool { return n.name == name })
	if i < 0 {
		return nodeSight{}
	}
	return s.nodes[i]
}

// leaving counts all blocks on their way back.
func (s *sight) leaving() int {
	count := 0
	for _, n := range s.nodes {
		count += len(n.leaving)
	}
	return count
}

// most is the largest number of blocks in service that one of the nodes has.
func (s *sight) most() int {
	most := 0
	for _, n := range s.nodes {
		most = max(most, len(n.blocks))
	}
	return most
}

func (s *sight) ready(pool string) bool { return s.pool(pool, v1alpha1.PoolReady) }

func (s *sight) exhausted(pool string) bool { return s.pool(pool, v1alpha1.PoolExhausted) }

// pool says whether a pool's condition is true.
func (s *sight) pool(name, condition string) bool {
	for _, p := range s.pools {
		if p.Name == name {
			return meta.IsStatusConditionTrue(p.Status.Conditions, condition)
		}
	}
	return false
}
