package integration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	slimmetav1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// ciliumPool waits until a CiliumPodIPPool with these ranges and maskSize exists, or none if
// want is "".
func (e *env) ciliumPool(name, want string) *ciliumv2alpha1.CiliumPodIPPool {
	e.TB.Helper()
	obj := &ciliumv2alpha1.CiliumPodIPPool{}
	e.Eventually(fmt.Sprintf("CiliumPodIPPool %s is %q", name, want), func() error {
		err := e.Client.Get(e.Ctx, client.ObjectKey{Name: name}, obj)
		got := ""
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return err
		case obj.Spec.IPv4 == nil:
			return errors.New("it has no IPv4")
		default:
			got = fmt.Sprint(obj.Spec.IPv4.CIDRs, obj.Spec.IPv4.MaskSize)
		}
		if got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	return obj
}

// The operator maintains a CiliumPodIPPool for each pool that PodIPPools serve, and does not change
// other ones.
func TestCiliumPodIPPoolsAreKept(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.Mode = ciliumnode.MultiPool
	theirs := &ciliumv2alpha1.CiliumPodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "green"}, Spec: ciliumv2alpha1.IPPoolSpec{
		IPv4: &ciliumv2alpha1.IPv4PoolSpec{CIDRs: []ciliumv2alpha1.PoolCIDR{"192.0.2.0/24"}, MaskSize: 28},
	}}
	e.Create(theirs)
	e.start(s)
	for pool, cidr := range map[string]string{"blue": "10.2.0.0/24", "green": "10.3.0.0/24"} {
		e.pool(pool+"s", func(p *v1alpha1.PodIPPool) { p.Spec.CiliumPoolName = pool }, cidr)
	}
	e.pool("all", nil, "10.1.0.0/24")
	e.ciliumPool("default", "[192.0.2.0/32] 27")
	blue := e.ciliumPool("blue", "[192.0.2.0/32] 27")
	e.condition("all", v1alpha1.PoolCiliumPool, metav1.ConditionTrue, "Kept")
	e.condition("greens", v1alpha1.PoolCiliumPool, metav1.ConditionFalse, "OtherSize")
	e.event("greens", "CiliumPodIPPoolUnfit")

	// People may add selectors; the families follow the PodIPPools.
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"podSelector":{"matchLabels":{"team":"blue"}}}}`))
	e.Must(e.Client.Patch(e.Ctx, blue, patch))
	e.change("blues", func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 122, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00:4::/112"}}}
	})
	e.Eventually("it has both families", func() error {
		if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: "blue"}, blue); err != nil {
			return err
		}
		if blue.Spec.IPv6 == nil {
			return errors.New("it has no IPv6")
		}
		return nil
	})
	if blue.Spec.IPv6.MaskSize != 122 || blue.Spec.PodSelector == nil || blue.Spec.PodSelector.MatchLabels["team"] != "blue" {
		t.Errorf("it is %+v", blue.Spec)
	}

	// A deleted CiliumPodIPPool is recreated.
	e.Delete(blue)
	e.ciliumPool("blue", "[192.0.2.0/32] 27")

	// It stays as long as an agent has a CIDR of it, even if no PodIPPool serves it.
	e.bareNode("n1", nil)
	e.isAssigned("n1", 1)
	lists := func(cidrs ...string) { // of blue
		t.Helper()
		e.eventuallyOn("the CiliumNode is written", "n1", func(cn *ciliumv2.CiliumNode) error {
			cn.Spec.IPAM.Pools.Allocated = []ipamtypes.IPAMPoolAllocation{{Pool: "default", CIDRs: harness.AssignedCIDRs(cn)}}
			if len(cidrs) > 0 {
				cn.Spec.IPAM.Pools.Allocated = append([]ipamtypes.IPAMPoolAllocation{{Pool: "blue", CIDRs: []iputil.Prefix{iputil.PrefixFrom(netip.MustParsePrefix(cidrs[0]))}}}, cn.Spec.IPAM.Pools.Allocated...)
			}
			return e.Client.Update(e.Ctx, cn)
		})
	}
	lists("10.99.0.0/27") // foreign: it is not a block
	for _, pool := range []string{"blues", "greens"} {
		p := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: pool}}
		e.Delete(p)
		e.Gone(p)
	}
	e.never("the CiliumPodIPPool is deleted while a node lists a CIDR of it", func() bool {
		return e.Client.Get(e.Ctx, client.ObjectKey{Name: "blue"}, &ciliumv2alpha1.CiliumPodIPPool{}) != nil
	})
	lists()
	e.ciliumPool("blue", "")
	if left := e.ciliumPool("green", "[192.0.2.0/24] 28"); left.UID != theirs.UID || left.ResourceVersion != theirs.ResourceVersion {
		t.Error("the operator wrote a CiliumPodIPPool that is not its own")
	}
}

// Cilium moves CiliumPodIPPools from cilium.io/v2alpha1 to v2, at last without v2alpha1. A running
// operator follows, and so does one that starts then.
func TestCiliumPodIPPoolsChangeVersion(t *testing.T) {
	t.Parallel()
	cluster := cptest.New(t, controlplane.Options{})
	e := newEnvOn(t, cluster)
	served, err := apiclient.NewClient(cluster.Config(), client.Options{Scheme: e.Client.Scheme()})
	e.Must(err)
	e.Client = interceptor.NewClient(e.Client, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return served.Get(ctx, key, obj, opts...)
		},
		Delete: func(ctx context.Context, _ client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return served.Delete(ctx, obj, opts...)
		},
	})
	s := quick()
	s.Mode = ciliumnode.MultiPool
	first := e.start(s)
	e.pool("all", nil, "10.1.0.0/24")
	before := e.ciliumPool("default", "[192.0.2.0/32] 27")

	crds, err := controlplane.AllCiliumCRDs("ciliumpodippools.yaml")
	e.Must(err)
	versions := &crds[0].Spec.Versions
	*versions = append(*versions, (*versions)[0])
	(*versions)[0].Name = "v2"
	(*versions)[1].Served = false
	(*versions)[1].Storage = false
	e.Must(cluster.InstallCRDs(e.Ctx, crds...))

	blue := func(p *v1alpha1.PodIPPool) { p.Spec.CiliumPoolName = "blue" }
	e.pool("blues", blue, "10.2.0.0/24")
	e.ciliumPool("blue", "[192.0.2.0/32] 27")
	e.condition("blues", v1alpha1.PoolCiliumPool, metav1.ConditionTrue, "Kept")
	e.Delete(before)
	e.Eventually("the watch shows that it is gone, and another is made", func() error {
		if again := e.ciliumPool("default", "[192.0.2.0/32] 27"); again.UID == before.UID {
			return errors.New("it is still the first one")
		}
		return nil
	})

	first.stop()
	e.start(s)
	e.Delete(&v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "blues"}})
	e.ciliumPool("blue", "")
	commandsReadCiliumPodIPPools(e, cluster, served)
}

// commandsReadCiliumPodIPPools checks that the commands read CiliumPodIPPools in the version that the API server serves.
func commandsReadCiliumPodIPPools(e *env, cluster *controlplane.Cluster, served client.Client) {
	e.TB.Helper()
	e.ciliumConfig(map[string]string{"ipam": "multi-pool"})
	green := &ciliumv2alpha1.CiliumPodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "green"}, Spec: ciliumv2alpha1.IPPoolSpec{
		PodSelector: &slimmetav1.LabelSelector{MatchLabels: map[string]string{"app": "green"}},
		IPv4:        &ciliumv2alpha1.IPv4PoolSpec{CIDRs: []ciliumv2alpha1.PoolCIDR{"198.51.100.0/24"}, MaskSize: 28},
	}}
	e.Must(served.Create(e.Ctx, green))
	e.bareNode("n1", nil)
	e.isAssigned("n1", 1)
	e.AgentRequests("n1", 16, 1)
	e.Create(harness.BoundPod("n1", "green-0", map[string]string{"app": "green"}))
	// Cilium itself serves another node.
	e.bareNode("n2", map[string]string{"cilium-pool.io/ignore": "true"})
	theirs := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	theirs.Spec.IPAM.Pools.Allocated = []ipamtypes.IPAMPoolAllocation{{Pool: "green", CIDRs: []iputil.Prefix{iputil.PrefixFrom(netip.MustParsePrefix("198.51.100.0/28"))}}}
	e.Create(theirs)
	kubeconfig := filepath.Join(e.TB.TempDir(), "kubeconfig")
	e.Must(cluster.WriteKubeconfig(kubeconfig))
	for command, want := range map[string]string{
		"import --from cilium": "name: green",
		"observe report":       "green +ipv4 +198.51.100.0/24 +1",
		"check":                "PodServedByNoPool +Pod/default/green-0",
	} {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		cmd := plugin.New(streams, "v0.0.0-test")
		cmd.SetArgs(append(strings.Fields(command), "--kubeconfig", kubeconfig))
		err := cmd.ExecuteContext(e.Ctx)
		if !regexp.MustCompile(want).MatchString(out.String()) {
			e.TB.Errorf("%s (%v) shows no %q:\n%s", command, err, want, out)
		}
	}
}
