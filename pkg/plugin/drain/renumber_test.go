package drain

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// renumbered is a cluster that has been read, and the API server it was read from.
type renumbered struct {
	*clusterview.Cluster
	out, errOut strings.Builder
	// refuse is the answer to patches; deletes are the UIDs that deletions are conditional on.
	refuse    error
	deletes   []string
	evictions int
}

func (r *renumbered) env() *cli.Env {
	return &cli.Env{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &r.out, ErrOut: &r.errOut}}
}

// readOf reads a cluster of these objects.
func readOf(t *testing.T, objects ...client.Object) *renumbered {
	t.Helper()
	scheme, err := apiclient.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &renumbered{}
	served := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, o ...client.PatchOption) error {
			if r.refuse != nil {
				return r.refuse
			}
			return c.Patch(ctx, obj, patch, o...)
		},
		Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, o ...client.DeleteOption) error {
			options := (&client.DeleteOptions{}).ApplyOptions(o)
			uid := "any"
			if options.Preconditions != nil && options.Preconditions.UID != nil {
				uid = string(*options.Preconditions.UID)
			}
			r.deletes = append(r.deletes, uid)
			return nil
		},
		SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
			r.evictions++
			return nil
		},
	}).WithObjects(objects...).Build()
	s := &clusterread.Objects{Time: fixtures.Noon(), Mode: ciliumnode.CRD}
	for _, obj := range objects {
		if err := served.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			t.Fatal(err)
		}
		switch obj := obj.(type) {
		case *v1alpha1.PodIPPool:
			s.Pools = append(s.Pools, *obj)
		case *v1alpha1.PodIPBlock:
			s.Blocks = append(s.Blocks, *obj)
		case *corev1.Pod:
			s.Pods = append(s.Pods, *obj)
		case *ciliumv2.CiliumNode:
			s.CiliumNodes = append(s.CiliumNodes, clusterread.CiliumNode{View: ciliumnode.NewView(obj)})
		}
	}
	r.Cluster = clusterview.New(s, clusterread.Operator{Settings: config.DefaultSettings()})
	r.Client = served
	return r
}

// ranged returns pool p with these CIDRs; CIDRs with a "-" in front drain.
func ranged(cidrs ...string) *v1alpha1.PodIPPool {
	pool := fixtures.PodIPPool("p", 1)
	for _, c := range cidrs {
		entry := v1alpha1.PoolCIDR{CIDR: strings.TrimPrefix(c, "-")}
		if entry.CIDR != c {
			entry.AllocationPolicy = v1alpha1.AllocationDrain
		}
		pool.Spec.IPv4.CIDRs = append(pool.Spec.IPv4.CIDRs, entry)
	}
	return pool
}

// ending returns a deleted pool that its finalizer keeps.
func ending(pool *v1alpha1.PodIPPool) *v1alpha1.PodIPPool {
	return fixtures.BeingDeleted(fixtures.Finalized(pool))
}

// policies returns the CIDRs of pool p as stored in the API server, in ranged's notation.
func (r *renumbered) policies(t *testing.T) string {
	t.Helper()
	pool := &v1alpha1.PodIPPool{}
	if err := r.Client.Get(t.Context(), client.ObjectKey{Name: "p"}, pool); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, entry := range pool.Spec.IPv4.CIDRs {
		if entry.AllocationPolicy == v1alpha1.AllocationDrain {
			entry.CIDR = "-" + entry.CIDR
		}
		out = append(out, entry.CIDR)
	}
	return strings.Join(out, " ")
}

const oldCIDR, newCIDR = "10.0.0.0/24", "10.1.0.0/24"

// poolMove returns the move of all nodes of pool p to pool q.
func poolMove(ranges ...netip.Prefix) renumbering {
	return renumbering{oldRange: "pool p", newRange: "pool q", newPool: "q", old: target{name: "pool p", pool: "p", ranges: ranges}}
}

// The next step follows from the cluster alone.
func TestStages(t *testing.T) {
	byCIDR, byPool := cidrMove(oldCIDR, newCIDR), poolMove(fixtures.Prefix(oldCIDR))
	block := func(cidr string) client.Object { return fixtures.BlockObject(cidr, ipalloc.Draining) }
	for name, test := range map[string]struct {
		move    renumbering
		objects []client.Object
		want    stage
	}{
		"not begun":                      {byCIDR, []client.Object{ranged(oldCIDR), block("10.0.0.0/30")}, toBegin},
		"it drains, without the new one": {byCIDR, []client.Object{ranged("-" + oldCIDR)}, toBegin},
		"the new one drains too":         {byCIDR, []client.Object{ranged("-"+oldCIDR, "-"+newCIDR)}, toBegin},
		"a block is left":                {byCIDR, []client.Object{ranged("-"+oldCIDR, newCIDR), block("10.0.0.4/30")}, toLeave},
		"one of the new range alone":     {byCIDR, []client.Object{ranged("-"+oldCIDR, newCIDR), block("10.1.0.4/30")}, toRemove},
		"taken out too early":            {byCIDR, []client.Object{ranged(newCIDR), block("10.0.0.4/30")}, toLeave},
		"taken out":                      {byCIDR, []client.Object{ranged(newCIDR), block("10.1.0.4/30")}, toVerify},
		"the pool is deleted instead":    {byCIDR, []client.Object{ending(ranged(oldCIDR))}, toLeave},
		"a pool":                         {byPool, []client.Object{ranged(oldCIDR)}, toBegin},
		"a pool that drains":             {byPool, []client.Object{ranged("-" + oldCIDR)}, toRemove},
		"of a CIDR that it had":          {byPool, []client.Object{ranged("-" + oldCIDR), block("10.7.0.0/30")}, toLeave},
		"a pool on its way out":          {byPool, []client.Object{ending(ranged("-" + oldCIDR))}, toLeave},
		"a pool that is gone":            {poolMove(), []client.Object{}, toVerify},
		"it is gone, and not its block":  {poolMove(), []client.Object{block("10.0.0.4/30")}, toLeave},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.move.stage(readOf(t, test.objects...).Cluster); got != test.want {
				t.Errorf("stage %d, want %d", got, test.want)
			}
		})
	}
}

// A decision on an older version of the pool is not written.
func TestWritesOnTheVersionRead(t *testing.T) {
	m := cidrMove(oldCIDR, newCIDR)
	for name, write := range map[string]func(*renumbered) error{
		"begin":  func(r *renumbered) error { return m.begin(t.Context(), r.Cluster, false) },
		"remove": func(r *renumbered) error { return m.remove(t.Context(), r.Cluster) },
		"abort":  func(r *renumbered) error { return m.abort(t.Context(), r.env(), r.Cluster) },
	} {
		t.Run(name, func(t *testing.T) {
			r := readOf(t, ranged("-"+oldCIDR))
			later := r.PodIPPools["p"].DeepCopy()
			later.Spec.IPv4.CIDRs = append(later.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.2.0.0/24"})
			if err := r.Client.Update(t.Context(), later); err != nil {
				t.Fatal(err)
			}
			if err := write(r); !apierrors.IsConflict(err) {
				t.Errorf("%v, want a conflict", err)
			}
			if got, want := r.policies(t), "-"+oldCIDR+" 10.2.0.0/24"; got != want {
				t.Errorf("the pool has %s, want %s", got, want)
			}
		})
	}
}

// The operator may write the status of a pool at any time.
func TestWritesOverANewerStatus(t *testing.T) {
	m := cidrMove(oldCIDR, newCIDR)
	for name, test := range map[string]struct {
		write func(*renumbered) error
		want  string
	}{
		"check":  {func(r *renumbered) error { return m.begin(t.Context(), r.Cluster, true) }, "-" + oldCIDR},
		"begin":  {func(r *renumbered) error { return m.begin(t.Context(), r.Cluster, false) }, "-" + oldCIDR + " " + newCIDR},
		"remove": {func(r *renumbered) error { return m.remove(t.Context(), r.Cluster) }, ""},
		"abort":  {func(r *renumbered) error { return m.abort(t.Context(), r.env(), r.Cluster) }, oldCIDR},
	} {
		t.Run(name, func(t *testing.T) {
			r := readOf(t, ranged("-"+oldCIDR))
			later := r.PodIPPools["p"].DeepCopy()
			later.Status.Nodes = 7
			if err := r.Client.Update(t.Context(), later); err != nil {
				t.Fatal(err)
			}
			if err := test.write(r); err != nil || r.policies(t) != test.want {
				t.Errorf("%v, the pool has %q, want %q", err, r.policies(t), test.want)
			}
		})
	}
}

// A pool that is being deleted goes by itself.
func TestWaitsForThePoolToGo(t *testing.T) {
	r := readOf(t, ending(ranged("-"+oldCIDR)))
	w := newFollower(r.env(), flags{})
	if done, err := w.advance(t.Context(), r.Cluster, poolMove(fixtures.Prefix(oldCIDR))); done || err != nil {
		t.Errorf("done %t, %v: %s", done, err, r.errOut.String())
	}
}

func TestDeletesThePoolThatWasRead(t *testing.T) {
	r, m := readOf(t, ranged("-"+oldCIDR)), poolMove(fixtures.Prefix(oldCIDR))
	if err := m.remove(t.Context(), r.Cluster); err != nil || len(r.deletes) != 1 || r.deletes[0] != "uid-p" {
		t.Errorf("%v: deleted by UID %v", err, r.deletes)
	}
}

// A move that is over cannot be aborted.
func TestAbort(t *testing.T) {
	m := cidrMove(oldCIDR, newCIDR)
	for name, test := range map[string]struct {
		objects []client.Object
		over    bool
		want    string
	}{
		"under way":                 {[]client.Object{ranged("-"+oldCIDR, newCIDR, "-10.2.0.0/24")}, false, oldCIDR + " " + newCIDR + " -10.2.0.0/24"},
		"taken out":                 {[]client.Object{ranged(newCIDR)}, true, newCIDR},
		"the pool is on its way":    {[]client.Object{ending(ranged("-"+oldCIDR, newCIDR))}, true, "-" + oldCIDR + " " + newCIDR},
		"there is no such pool now": {nil, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := readOf(t, test.objects...)
			if err := m.abort(t.Context(), r.env(), r.Cluster); (err != nil) != test.over || test.over && !strings.HasPrefix(err.Error(), "it is over: ") {
				t.Errorf("%v; it is over: %t", err, test.over)
			}
			if len(test.objects) > 0 && r.policies(t) != test.want {
				t.Errorf("the pool has %s, want %s", r.policies(t), test.want)
			}
		})
	}
}

// The operator may write the pool's status at any time: the next look continues.
func TestLooksAgainAfterAConflict(t *testing.T) {
	r := readOf(t, ranged(oldCIDR))
	w, m := newFollower(r.env(), flags{}), cidrMove(oldCIDR, newCIDR)
	r.refuse = apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("podippools").GroupResource(), "p", errors.New("modified"))
	if done, err := w.advance(t.Context(), r.Cluster, m); done || err != nil {
		t.Errorf("after a conflict: done %t, %v", done, err)
	}
	r.refuse = apierrors.NewInternalError(errors.New("etcd"))
	if _, err := w.advance(t.Context(), r.Cluster, m); !apierrors.IsInternalError(err) {
		t.Errorf("%v, want the API server's error", err)
	}
	r.refuse = nil
	if done, err := w.advance(t.Context(), r.Cluster, m); done || err != nil || r.policies(t) != "-"+oldCIDR+" "+newCIDR {
		t.Errorf("done %t, %v, the pool has %s", done, err, r.policies(t))
	}
}

// Pods are evicted from draining blocks, and only if that is allowed.
func TestEvictsOfWhatDrains(t *testing.T) {
	yes := true
	pod := fixtures.Pod("web", "uid-web", "n", "10.0.0.1")
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "rs", Controller: &yes}}
	for name, test := range map[string]struct {
		phase ipalloc.Phase
		evict bool
		want  int
	}{
		"in service": {ipalloc.InService, true, 0}, "draining": {ipalloc.Draining, true, 1}, "not asked to": {ipalloc.Draining, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := readOf(t, ranged("-"+oldCIDR, newCIDR), fixtures.BlockObject("10.0.0.0/30", test.phase), pod.DeepCopy())
			w := newFollower(r.env(), flags{evict: test.evict, maxConcurrent: 5, maxRestarts: 1})
			if _, err := w.advance(t.Context(), r.Cluster, cidrMove(oldCIDR, newCIDR)); err != nil || r.evictions != test.want {
				t.Errorf("%d evictions, %v; want %d", r.evictions, err, test.want)
			}
		})
	}
}

// A range is not gone while a CiliumNode names anything in it, in any field.
func TestNamed(t *testing.T) {
	for name, edit := range map[string]func(*ciliumv2.CiliumNode){
		"spec.ipam.pool": func(cn *ciliumv2.CiliumNode) { cn.Spec.IPAM.Pool = fixtures.AllocationMap("10.0.0.9") },
		"non-canonical":  func(cn *ciliumv2.CiliumNode) { cn.Spec.IPAM.Pool = fixtures.AllocationMap("::ffff:10.0.0.9") },
		"spec.ipam.podCIDRs": func(cn *ciliumv2.CiliumNode) {
			cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, fixtures.PodCIDR("10.0.0.0/28"))
		},
		"status.ipam.used": func(cn *ciliumv2.CiliumNode) { cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.9") },
		"status.ipam.release-ips": func(cn *ciliumv2.CiliumNode) {
			cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{"10.0.0.9": "released"}
		},
		"spec.addresses": func(cn *ciliumv2.CiliumNode) {
			cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: "10.0.0.9"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cn := fixtures.CiliumNode("n", "", "10.1.0.0/28")
			m := cidrMove(oldCIDR, newCIDR)
			if got := m.named(readOf(t, cn.DeepCopy()).Cluster); len(got) > 0 {
				t.Fatalf("%v before it names anything", got)
			}
			edit(cn)
			if got := m.named(readOf(t, cn).Cluster); len(got) != 1 || got[0] != "n" {
				t.Errorf("named by %v, want n", got)
			}
		})
	}
}

// The old range stays in the pool while a CiliumNode names anything in it.
func TestTakesOutWhatNothingNames(t *testing.T) {
	for name, test := range map[string]struct {
		cidr string
		done bool
		want string
	}{
		"it is named": {"10.0.0.0/28", true, "-" + oldCIDR + " " + newCIDR}, "it is not": {"10.1.0.0/28", false, newCIDR},
	} {
		t.Run(name, func(t *testing.T) {
			r := readOf(t, ranged("-"+oldCIDR, newCIDR), fixtures.CiliumNode("n", "", test.cidr))
			w := newFollower(r.env(), flags{})
			if done, err := w.advance(t.Context(), r.Cluster, cidrMove(oldCIDR, newCIDR)); done != test.done || done != errors.Is(err, cli.NotReached) {
				t.Errorf("done %t, %v", done, err)
			}
			if got := r.policies(t); got != test.want {
				t.Errorf("the pool has %s, want %s", got, test.want)
			}
		})
	}
}

// An agent still names its addresses of a family that it once ran. They do not keep a range.
func TestStale(t *testing.T) {
	cn := fixtures.CiliumNode("n", "", "10.1.0.0/28")
	cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: "10.1.0.9"}, {Type: "CiliumInternalIP", IP: "fd00::9"}}
	cn.Status.IPAM.Used = ipamtypes.AllocationMap{"10.1.0.9": {Owner: "router"}}
	for from, want := range map[string]string{
		"fd00::/120": "CiliumNodes name only addresses that their agents had when they ran the family, which are harmless: n",
		"fd07::/120": "no CiliumNode names anything of it",
	} {
		m, r := cidrMove(from, "fd01::/120"), readOf(t, cn)
		if named := m.named(r.Cluster); len(named) > 0 {
			t.Errorf("%s: named by %v", from, named)
		}
		if got := m.goneWords(r.Cluster); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q, want %q", from, got, want)
		}
	}
}
