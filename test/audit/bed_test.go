// Package audit runs the subcommand check against the real API server: each planted fault and each
// everyday mistake is found, and a healthy cluster has no findings.
//
// Only this suite finds a fault that check overlooks, or reports without reason.
package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// patience limits every wait; no test sleeps that long.
const patience = harness.Patience

var planes cptest.Pool

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(planes.Main(m))
}

func operator(t testing.TB) string {
	t.Helper()
	return harness.Program(t, "cilium-pool-operator")
}

// bed is one test's cluster, empty at first.
type bed struct {
	testing.TB
	*harness.Bed
	cluster    *controlplane.Cluster
	kubeconfig string // with the rights in docs/reference/check.md
}

func newBed(t testing.TB) *bed {
	t.Helper()
	cluster := planes.Cluster(t)
	b := &bed{TB: t, Bed: harness.NewBed(t, cluster.Config()), cluster: cluster}
	b.Wipe(&corev1.PodList{}, &corev1.NodeList{}, &ciliumv2.CiliumNodeList{}, &v1alpha1.PodIPPoolList{}, &v1alpha1.PodIPBlockList{}, &v1alpha1.PodIPPinList{},
		&ciliumv2.CiliumLoadBalancerIPPoolList{}, &ciliumv2alpha1.CiliumPodIPPoolList{}, &coordinationv1.LeaseList{})
	b.leads(clusterread.LeaseNamespace, clusterread.LeaseName, ciliumnode.CRD)
	b.kubeconfig = b.reader("auditor", roleOfPage(t))
	return b
}

func roleOfPage(t testing.TB) *rbacv1.ClusterRole { return harness.RoleOfPage(t, "reference/check.md") }

// reader creates a ServiceAccount with a role, and a kubeconfig for it.
func (b *bed) reader(name string, role *rbacv1.ClusterRole) string {
	b.Helper()
	role.Name = name
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	binding := harness.Bind(name, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "default", Name: name})
	for _, o := range []client.Object{account, role, binding} {
		b.Create(o)
		b.Cleanup(func() {
			if err := b.Client.Delete(context.Background(), o); err != nil {
				b.Error(err)
			}
		})
	}
	config, err := b.cluster.ConfigFor(b.Context(), "default", name)
	if err != nil {
		b.Fatal(err)
	}
	b.knows(account, role.Rules[0])
	path := filepath.Join(b.TempDir(), "kubeconfig")
	b.Must(controlplane.WriteKubeconfig(path, config))
	return path
}

// knows waits until the API server, which reads roles from a cache, grants a
// ServiceAccount the first rule of its role.
func (b *bed) knows(account *corev1.ServiceAccount, rule rbacv1.PolicyRule) {
	b.Helper()
	clients, err := kubernetes.NewForConfig(b.cluster.Config())
	if err != nil {
		b.Fatal(err)
	}
	asked := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               fmt.Sprintf("system:serviceaccount:%s:%s", account.Namespace, account.Name),
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0]},
	}}
	harness.Eventually(b, "the API server knows the role", func() error {
		review, err := clients.AuthorizationV1().SubjectAccessReviews().Create(b.Context(), asked, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("%s is not allowed to %s %s", asked.Spec.User, rule.Verbs[0], rule.Resources[0])
		}
		return err
	})
}

// outcome is the exit code and output of check.
type outcome struct {
	code           int
	stdout, stderr string
}

// check runs the subcommand with the rights of the page.
func (b *bed) check(args ...string) outcome {
	b.Helper()
	return b.run(append([]string{"check", "--kubeconfig=" + b.kubeconfig, "--every=1s"}, args...)...)
}

func (b *bed) run(args ...string) outcome {
	b.Helper()
	path := operator(b.TB) // may need a build, which does not count towards the patience
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"HOME=" + b.TempDir()}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if cmd.ProcessState == nil || ctx.Err() != nil {
		b.Fatalf("check did not run: %v", err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// report reads the JSON of an outcome.
func (b *bed) report(o outcome) audit.Report {
	b.Helper()
	var r audit.Report
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		b.Fatalf("exit code %d, no report: %v\n%s%s", o.code, err, o.stdout, o.stderr)
	}
	return r
}

// lines returns findings in the format of tables: reason, object, others, addresses.
func lines(r audit.Report) []string {
	out := []string{}
	for _, f := range r.Findings {
		parts := []string{string(f.Reason), f.Object.String()}
		for _, o := range f.Others {
			parts = append(parts, o.String())
		}
		for _, s := range f.Subjects {
			parts = append(parts, s.Address)
		}
		out = append(out, strings.Join(parts, " "))
	}
	slices.Sort(out)
	return out
}

// gone deletes an object after the test's own context has ended.
func (b *bed) gone(o client.Object) {
	if err := b.Client.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
		b.Error(err)
	}
}

// pool creates a pool of /29 blocks that the operator has seen. The cooldown is an
// hour, so that blocks planted as cooling still are at the last check.
func (b *bed) pool(name string, mod func(*v1alpha1.PodIPPool), cidrs ...string) *v1alpha1.PodIPPool {
	b.Helper()
	p := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": name}}
	p.Annotations = map[string]string{v1alpha1.TrustedLabelsAnnotation: "true"}
	p.Spec.Cooldown = new(v1alpha1.Duration("1h"))
	p.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 29}
	for _, c := range cidrs {
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: c})
	}
	b.Create(p)
	p.Status.ObservedGeneration = p.Generation
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolReady, Status: metav1.ConditionTrue, Reason: "Serving", LastTransitionTime: metav1.Now()}}
	if mod != nil {
		mod(p)
	}
	b.UpdateStatus(p)
	return p
}

func (b *bed) block(node, cidr string) *v1alpha1.PodIPBlock {
	b.Helper()
	o := crd.NewBlock(netip.MustParsePrefix(cidr), "main", node, "")
	b.Create(o)
	return o
}

// node creates a Node of pool main with a Ready agent, a block, and a CiliumNode that
// publishes it, with the router's address and a pod's in use.
func (b *bed) node(name, cidr string) *ciliumv2.CiliumNode {
	b.Helper()
	b.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "main"}}})
	b.AgentPod(name)
	b.block(name, cidr)
	prefix := netip.MustParsePrefix(cidr)
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{}
	cn.Spec.IPAM.PodCIDRs = []iputil.Prefix{iputil.PrefixFrom(prefix)}
	for a := prefix.Addr().Next(); prefix.Contains(a.Next()); a = a.Next() {
		cn.Spec.IPAM.Pool[a.String()] = ipamtypes.AllocationIP{}
	}
	b.Create(cn)
	router := prefix.Addr().Next()
	cn.Status.IPAM.Used = ipamtypes.AllocationMap{
		router.String():        {Owner: "router"},
		router.Next().String(): {Owner: "default/on-" + name},
	}
	b.UpdateStatus(cn)
	b.RunningPod(name, "on-"+name, router.Next().String())
	return cn
}
