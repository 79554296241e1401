package adopt

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

const image = "quay.io/cilium/cilium:v1.20.1@sha256:0"

func compareNetip() cmp.Option { return cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}) }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, prefix(s))
	}
	return out
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// usedBy makes pods have addresses: address, owner, address, owner...
func usedBy(list ...string) map[netip.Addr]string {
	used := map[netip.Addr]string{}
	for i := 0; i < len(list); i += 2 {
		used[netip.MustParseAddr(list[i])] = list[i+1]
	}
	return used
}

// pool returns a pool with IPv4 ranges in blocks of this length; a range with a "-" before it
// drains.
func pool(t testing.TB, name string, bits int32, ranges ...string) *crd.Pool {
	t.Helper()
	obj := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	obj.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: bits}
	for _, r := range ranges {
		policy := v1alpha1.AllocationAllocate
		if r[0] == '-' {
			policy, r = v1alpha1.AllocationDrain, r[1:]
		}
		obj.Spec.IPv4.CIDRs = append(obj.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: r, AllocationPolicy: policy})
	}
	p, err := crd.PoolFrom(obj, crd.Defaults{Policy: expand.DefaultPolicy(), Cooldown: time.Minute, NodeGoneCooldown: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// adopted returns a block that cluster-pool mode assigned to node n.
func adopted(cidr, node string) crd.Block {
	return crd.Block{Name: crd.BlockName(prefix(cidr)), CIDR: prefix(cidr), Pool: "main", Node: node, AdoptedFrom: string(ClusterPool)}
}

func claimed(cidr, node string) crd.Block {
	b := adopted(cidr, node)
	b.AdoptedFrom = ""
	return b
}

// config returns a configuration that causes no finding about settings.
func config() *ciliumconfig.Config {
	return &ciliumconfig.Config{Data: map[string]string{
		"ipam": "cluster-pool", "enable-endpoint-routes": "true", "enable-bpf-masquerade": "true", "enable-ipv4-masquerade": "true", "routing-mode": "native",
		"ipv4-native-routing-cidr": "10.0.0.0/8",
	}}
}

// fromClusterPool returns a node with these CIDRs that pool p serves.
func fromClusterPool(name string, p *crd.Pool, given ...string) Node {
	return Node{Name: name, From: ClusterPool, AssignedCIDRs: prefixes(given...), Pools: []*crd.Pool{p}, Agent: image, Chosen: true}
}

// reasons returns the reasons of findings, each with its node.
func reasons(findings []Finding) []string {
	var out []string
	for _, f := range findings {
		out = append(out, string(f.Severity)+" "+f.Node+" "+string(f.Reason))
	}
	return out
}
