package integration

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
)

//go:embed testdata/frrconfigurations.yaml
var frrCRD []byte

const frrNamespace = "default"

// withFRR installs the kind FRRConfiguration, and a template for all nodes.
func withFRR(e *env) {
	e.TB.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	e.Must(yaml.UnmarshalStrict(frrCRD, definition))
	e.Must(e.cluster.InstallCRDs(e.Ctx, definition))
	e.Must(e.Client.DeleteAllOf(e.Ctx, frrconfig.Empty("", ""), client.InNamespace(frrNamespace)))
	e.Create(frrObject("template", `
nodeSelector: {matchLabels: {cilium-pool.io/template: ""}}
bgp:
  bfdProfiles: [{name: fast}]
  routers:
  - asn: 65001
    neighbors:
    - {address: 192.0.2.1, asn: 65000, bfdProfile: fast, dualStackAddressFamily: true, toAdvertise: {allowed: {mode: all}}}`))
}

// The API server accepts the examples.
func acceptsExamples(e *env) {
	e.TB.Helper()
	for _, file := range []string{"frr-k8s", "route-server"} {
		body, err := os.ReadFile("../../examples/bgp/" + file + ".yaml")
		e.Must(err)
		for _, doc := range strings.Split(string(body), "\n---\n") {
			obj := &unstructured.Unstructured{}
			e.Must(yaml.UnmarshalStrict([]byte(doc), &obj.Object))
			if obj.GetNamespace() != "" {
				obj.SetNamespace(frrNamespace)
			}
			e.Must(client.NewDryRunClient(e.Client).Create(e.Ctx, obj, client.FieldValidation(metav1.FieldValidationStrict)))
			if obj.GetKind() == frrconfig.Kind.Kind && !frrconfig.Read(obj).IsTemplate() {
				e.TB.Error("the example is no template")
			}
		}
	}
}

func frrObject(name, spec string) *unstructured.Unstructured {
	obj, parsed := frrconfig.Empty(frrNamespace, name), map[string]any{}
	if err := yaml.Unmarshal([]byte(spec), &parsed); err != nil {
		panic(err)
	}
	obj.Object["spec"] = parsed
	return obj
}

// announcedBy returns the prefixes of the operator's FRRConfigurations of a node.
func announcedBy(e *env, node string) ([]netip.Prefix, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(frrconfig.Kind)
	if err := e.Client.List(e.Ctx, list, client.InNamespace(frrNamespace)); err != nil {
		return nil, err
	}
	var out []netip.Prefix
	for i := range list.Items {
		if v := frrconfig.Read(&list.Items[i]); v.Ours && v.Node == node {
			out = append(out, v.Prefixes...)
		}
	}
	return out, nil
}

// announces waits until a node announces exactly its blocks, which are n.
func announces(e *env, node string, n int) {
	e.TB.Helper()
	e.Eventually(fmt.Sprintf("%s announces its %d blocks", node, n), func() error {
		var blocks []string
		for _, b := range e.Blocks(node) {
			blocks = append(blocks, b.Spec.CIDR)
		}
		announced, err := announcedBy(e, node)
		if err == nil && (len(blocks) != n || !slices.Equal(slices.Sorted(slices.Values(blocks)), slices.Sorted(slices.Values(texts(announced))))) {
			err = fmt.Errorf("it has %v, and announces %v", blocks, announced)
		}
		return err
	})
}

func texts(prefixes []netip.Prefix) []string {
	var out []string
	for _, p := range prefixes {
		out = append(out, p.String())
	}
	return out
}

// routeJudge fails the test if an operator publishes addresses of a block before the node announces it, or
// lets go of a block that the node still announces. It can let each operator live for one write.
type routeJudge struct {
	*env
	mu sync.Mutex
	// left is the number of writes until the operator dies; -1: it lives. dead is closed then.
	left int
	dead chan struct{}
	// except is a node with routes that cannot be written.
	except string
}

var errKilled = errors.New("the operator has been killed")

func (j *routeJudge) mayWrite() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.left == 0 {
		select {
		case <-j.dead:
		default:
			close(j.dead)
		}
		return errKilled
	}
	if j.left > 0 {
		j.left--
	}
	return nil
}

// rearm lets the next operator live for some writes.
func (j *routeJudge) rearm(writes int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.left, j.dead = writes, make(chan struct{})
}

// unannounced returns the fault of publishing blocks now; "": none.
func (j *routeJudge) unannounced(node string, cidrs []string) string {
	if node == j.except {
		return ""
	}
	announced, err := announcedBy(j.env, node)
	for _, cidr := range cidrs {
		if err != nil || !slices.Contains(texts(announced), cidr) {
			return fmt.Sprintf("%s is published on %s, which announces %v (%v)", cidr, node, announced, err)
		}
	}
	return ""
}

// announced returns the fault of deleting an object now; "": none.
func (j *routeJudge) announced(obj client.Object) string {
	block, ok := obj.(*v1alpha1.PodIPBlock)
	if !ok {
		return ""
	}
	announced, err := announcedBy(j.env, block.Spec.NodeName)
	if err != nil || slices.Contains(texts(announced), block.Spec.CIDR) {
		return fmt.Sprintf("block %s is let go of, and %s announces %v (%v)", block.Spec.CIDR, block.Spec.NodeName, announced, err)
	}
	return ""
}

// judge reports the fault of a write that passed. One that fails, as of a Node that is gone, changes nothing.
func (j *routeJudge) judge(fault string, err error) error {
	if err == nil && fault != "" {
		j.TB.Error(fault)
	}
	return err
}

func (j *routeJudge) wrap(c client.WithWatch) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := j.mayWrite(); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := j.mayWrite(); err != nil {
				return err
			}
			fault := ""
			switch o.(type) {
			case *ciliumv2.CiliumNode, *corev1.Node:
				body, err := patch.Data(o)
				j.Must(err)
				fault = j.unannounced(o.GetName(), listedIn(body))
			}
			return j.judge(fault, c.Patch(ctx, o, patch, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := j.mayWrite(); err != nil {
				return err
			}
			fault := j.announced(o)
			return j.judge(fault, c.Delete(ctx, o, opts...))
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if err := j.mayWrite(); err != nil {
				return err
			}
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := j.mayWrite(); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	})
}

// listedIn returns the CIDRs that a patch of a CiliumNode, or in kubernetes mode of a Node, lists.
func listedIn(patch []byte) []string {
	var p struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			IPAM struct {
				PodCIDRs []string `json:"podCIDRs"`
				Pools    struct {
					Allocated []struct {
						CIDRs []string `json:"cidrs"`
					} `json:"allocated"`
				} `json:"pools"`
			} `json:"ipam"`
		} `json:"spec"`
	}
	_ = json.Unmarshal(patch, &p)
	out := p.Spec.IPAM.PodCIDRs
	if cidr := p.Metadata.Annotations["network.cilium.io/ipv4-pod-cidr"]; cidr != "" {
		out = append(out, cidr)
	}
	for _, a := range p.Spec.IPAM.Pools.Allocated {
		out = append(out, a.CIDRs...)
	}
	return out
}

func quickFRR(mode ciliumnode.Mode) config.Settings {
	s := quick()
	s.Mode, s.FRRNamespace = mode, frrNamespace
	return s
}

func hostname(of string) map[string]string {
	return map[string]string{corev1.LabelHostname: of + ".example.org"}
}

// Blocks of both families are announced before their first address is published, until they cool down;
// templates reach the nodes; other objects stay as they are.
func TestBlocksAreAnnounced(t *testing.T) {
	e := newEnv(t)
	withFRR(e)
	acceptsExamples(e)
	theirs := frrObject("cilium-pool-template-n2", "nodeSelector: {matchLabels: {a: b}}")
	e.Create(theirs)
	j := &routeJudge{env: e, left: -1, except: "n2"}
	e.startWith(quickFRR(ciliumnode.CRD), j.wrap)
	e.pool("all", func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 123, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00:4::/112"}}}
	}, "10.1.0.0/24")
	e.node("n1", hostname("n1"), "ipv4", "ipv6")
	announces(e, "n1", 2)
	e.Pods("n1", "load", 50)
	e.running("load", 50)
	announces(e, "n1", 6)
	e.DeletePods("load", nil)
	announces(e, "n1", 2)

	change := frrconfig.Empty(frrNamespace, "template")
	e.Must(e.Client.Patch(e.Ctx, change, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"bgp":{"bfdProfiles":[{"name":"fast","receiveInterval":50}]}}}`))))
	e.Eventually("the template reaches the node", func() error {
		obj := frrconfig.Empty(frrNamespace, "cilium-pool-template-n1")
		if err := e.Client.Get(e.Ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		if body, _ := json.Marshal(obj); !strings.Contains(string(body), `"receiveInterval":50`) {
			return fmt.Errorf("it is %s", body)
		}
		return nil
	})

	e.bareNode("n2", hostname("n2"))
	e.hasBlocks("n2", 2)
	e.event("n2", "BlocksNotAnnounced")
	e.bareNode("n3", hostname("n3"))
	announces(e, "n3", 2)
	e.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3"}})
	e.Gone(frrconfig.Empty(frrNamespace, "cilium-pool-template-n3"))

	left := frrconfig.Empty(frrNamespace, theirs.GetName())
	e.Read(left, frrNamespace, theirs.GetName())
	if left.GetResourceVersion() != theirs.GetResourceVersion() {
		t.Error("the operator wrote an FRRConfiguration that is not its own")
	}
	e.Eventually("nothing is written any more", e.unchanged())
}

// Each operator dies after one write, and then each after one more than the one before. The order of
// routes and addresses holds all the same.
func TestRoutesOutliveOperators(t *testing.T) {
	e := newEnv(t)
	withFRR(e)
	e.pool("all", nil, "10.1.0.0/24")
	e.node("n1", hostname("n1"))
	j := &routeJudge{env: e}
	lives := func(writes, more int, until func() error) {
		t.Helper()
		e.Eventually("operators that do not live for long get there", func() error {
			j.rearm(writes)
			writes += more
			op := e.startWith(quickFRR(ciliumnode.CRD), j.wrap)
			defer op.stop()
			select {
			case <-j.dead:
			case <-time.After(3 * time.Second): // it has nothing to write
			}
			return until()
		})
	}
	blocks := func(n int) func() error {
		return func() error {
			announced, err := announcedBy(e, "n1")
			if cn, failed := e.ciliumNode("n1"); err == nil && failed == nil && len(e.Blocks("n1")) == n && len(announced) == n && len(cn.Spec.IPAM.PodCIDRs) == n {
				return nil
			}
			return fmt.Errorf("%v are announced (%v)", announced, err)
		}
	}
	lives(1, 0, blocks(1))
	e.Pods("n1", "load", 50)
	lives(1, 0, blocks(3))
	e.DeletePods("load", nil)
	lives(1, 1, blocks(1))
}

// In other modes the same order holds for whole blocks.
func TestBlocksOfOtherModesAreAnnounced(t *testing.T) {
	for mode, then := range map[ciliumnode.Mode]func(e *env){
		ciliumnode.MultiPool: func(e *env) {
			e.isAssigned("n1", 1)
			announces(e, "n1", 1)
			e.AgentRequests("n1", 40, 1)
			e.isAssigned("n1", 2)
			announces(e, "n1", 2)
		},
		ciliumnode.Kubernetes: func(e *env) {
			announces(e, "n1", 1)
			e.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
			e.awaitBlocks("its block has cooled down", "", 0, 0, nil)
			e.Gone(frrconfig.Empty(frrNamespace, "cilium-pool-template-n1"))
		},
	} {
		t.Run(mode.String(), func(t *testing.T) {
			e := newEnv(t)
			withFRR(e)
			s := quickMultiPool()
			if mode == ciliumnode.Kubernetes {
				s = quick()
			}
			s.Mode, s.FRRNamespace = mode, frrNamespace
			j := &routeJudge{env: e, left: -1}
			e.startWith(s, j.wrap)
			e.pool("all", nil, "10.1.0.0/24")
			e.bareNode("n1", hostname("n1"))
			then(e)
		})
	}
}
