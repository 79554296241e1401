package clusterread

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// State returns the state of an operator that has just started with these settings in a cluster with
// these objects. ciliumNodes are those of s.
func (s *Objects) State(set config.Settings, ciliumNodes []*ciliumnode.View) *state.Cluster {
	defaults := set.Defaults
	defaults.WholeBlocks = s.Mode.WholeBlocks()
	defaults.CiliumPools = s.Mode.ManyPools()
	ledger := state.NewLedger()
	c := &state.Cluster{
		Ledger: ledger, Pools: state.NewPools(defaults, ledger), Pods: state.NewPods(),
		Agents: state.NewAgents(set.AgentSettle), CiliumPools: state.NewCiliumPools(), Defaults: defaults,
		Cilium: &ciliumconfig.Latest{}, Mode: s.Mode,
		Waiting: map[string][]corev1.Pod{},
		Paused:  set.Paused, AnyMode: set.SkipModeCheck || set.Shadow,
		IgnoreTaints: state.SetOf(set.IgnoreTaints), StartupTaints: state.SetOf(set.StartupTaints), ShortageTaint: set.ShortageTaint,
	}
	c.Cilium.Set(s.CiliumConfig)
	for _, b := range s.blocks() {
		// A malformed block with a CIDR is held nevertheless.
		if b.CIDR.IsValid() {
			ledger.Upsert(b)
		}
	}
	hasNode := map[string]bool{}
	for i := range s.Nodes {
		hasNode[s.Nodes[i].Name] = true
	}
	for _, cn := range ciliumNodes {
		ledger.UpsertCiliumNode(cn)
		ledger.Exclusions.ExcludeCiliumNode(cn.Name, hasNode[cn.Name])
	}
	s.exclude(ledger)
	ledger.SetReady()
	for i := range s.Pools {
		c.Pools.Set(&s.Pools[i])
		if rule := s.Pools[i].Spec.PodAddresses; rule != nil {
			c.Pods.OwnBy(rule.OwnerLabel)
		}
	}
	for i := range s.Pins {
		if pin, err := crd.PinFrom(&s.Pins[i]); err == nil {
			ledger.Pins.Set(pin)
			_, key, _ := crd.SplitOwner(pin.Owner)
			c.Pods.OwnBy(key)
		}
	}
	for i := range s.Agents {
		c.Agents.Set(state.ReadAgent(&s.Agents[i]), state.ReadySince(&s.Agents[i]))
	}
	s.fillPods(c)
	return c
}

// exclude tells the ledger the addresses of nodes and Services.
func (s *Objects) exclude(ledger *state.Ledger) {
	record := func(kind string, meta *metav1.ObjectMeta, assigned, requested []netip.Prefix) {
		claimant := exclude.Claimant{Kind: kind, Name: meta.Name}
		if meta.Namespace != "" {
			claimant.Name = meta.Namespace + "/" + meta.Name
		}
		ledger.Exclusions.Exclude(claimant, assigned)
		claimant.Asks = true
		ledger.Exclusions.Ask(exclude.Ask{By: claimant, Since: meta.CreationTimestamp.Time, CIDRs: requested})
	}
	for i := range s.Nodes {
		assigned, requested := exclude.OfNode(&s.Nodes[i])
		record(exclude.Node, &s.Nodes[i].ObjectMeta, assigned, requested)
	}
	for i := range s.ServiceCIDRs {
		record(exclude.ServiceCIDR, &s.ServiceCIDRs[i].ObjectMeta, exclude.OfServices(&s.ServiceCIDRs[i]), nil)
	}
	for i := range s.Services {
		assigned, requested := exclude.OfService(&s.Services[i])
		record(exclude.Service, &s.Services[i].ObjectMeta, assigned, requested)
	}
	for i := range s.Endpoints {
		assigned, requested := exclude.OfEndpoints(&s.Endpoints[i])
		record(exclude.EndpointSlice, &s.Endpoints[i].ObjectMeta, assigned, requested)
	}
	for i := range s.LoadBalancerPools {
		record(exclude.LoadBalancerPool, &s.LoadBalancerPools[i].ObjectMeta, nil, exclude.OfLoadBalancerPool(&s.LoadBalancerPools[i]))
	}
}

// blocks returns the blocks of the snapshot sorted by name, so that of two with one CIDR the same
// one counts in any order of the list.
func (s *Objects) blocks() []crd.Block {
	out := make([]crd.Block, 0, len(s.Blocks))
	for i := range s.Blocks {
		b, _ := crd.BlockFrom(&s.Blocks[i]) // readBlocks reports malformed ones
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b crd.Block) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// fillPods assumes that all pods are old enough for their addresses to be known. If agents are
// assigned whole blocks, only new pods without an address count.
func (s *Objects) fillPods(c *state.Cluster) {
	read := state.ReadPod
	if s.Mode.ManyPools() {
		read = state.ReadPodWithRequest
	}
	for i := range s.Namespaces {
		c.Pods.SetNamespace(s.Namespaces[i].Name, state.PoolRequestOf(&s.Namespaces[i].ObjectMeta))
	}
	for _, v := range s.CiliumPools {
		c.CiliumPools.Set(v)
	}
	var p corev1.Pod // one for all, as its address is passed on: a million of them are a gigabyte
	for i := range s.Pods {
		p = s.Pods[i]
		p.UID = types.UID(p.Namespace + "/" + p.Name) // snapshots leave UIDs out
		var seen time.Time
		if s.Mode.WholeBlocks() {
			seen = p.CreationTimestamp.Time
		}
		c.Pods.Set(read(&p), seen)
		if len(p.Status.PodIPs) == 0 {
			c.Waiting[p.Spec.NodeName] = append(c.Waiting[p.Spec.NodeName], p)
		}
	}
}
