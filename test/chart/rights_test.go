package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/fleet"
)

// The operator, with the ServiceAccount's token and the Deployment's arguments, does everything it
// can do. The API server's audit log shows that no request was denied, and that no granted right is
// unused.
func TestRightsAreEnoughAndNoMore(t *testing.T) {
	b := newBed(t, helm4)
	go b.playDeploymentController(t.Context())
	b.ciliumConfig("ipam", "crd", "enable-ip-masq-agent", "true")
	readers := `metrics.readers=[{"kind":"ServiceAccount","name":"prometheus","namespace":"default"}]`
	b.helmWait("install", release, chart, "--set-json", readers)
	b.createBeijing()
	certificate, trust := b.certificate()
	op := b.startOperator("--metrics-cert-dir=" + certificate)
	b.Cleanup(func() {
		if b.Failed() {
			b.usedRights() // a missing right shows as a timeout
		}
	})

	b.lifeOfANode()

	op.servesMetrics(trust)
	op.stop()
	if log := op.Log(); strings.Contains(strings.ToLower(log), "forbidden") {
		t.Errorf("the operator logs\n%s", log)
	}
	used := b.usedRights()
	if !b.ServesServiceCIDRs() {
		used = append(used, "watch servicecidrs.networking.k8s.io")
		slices.Sort(used)
	}
	granted := slices.DeleteFunc(rightsOf(t, objects(t, b.helm("get", "manifest", release))), func(r string) bool {
		return seldom(r, used) && !slices.Contains(used, r)
	})
	if diff := cmp.Diff(used, granted); diff != "" {
		t.Errorf("rights (-used +granted):\n%s", diff)
	}
}

// An operator that may not list a kind is alive, but not Ready, so that an upgrade stops at it.
func TestNotReadyWithoutARight(t *testing.T) {
	b := newBed(t, helm4)
	go b.playDeploymentController(t.Context())
	b.ciliumConfig("ipam", "crd")
	b.helmWait("install", release, chart, "--set", "metrics.secure=false,metrics.address=127.0.0.1")
	role := &rbacv1.ClusterRole{}
	b.Read(role, "", release)
	rules := slices.Clone(role.Rules)
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "services") })
	b.Must(b.Client.Update(t.Context(), role))
	b.launchOperator()
	container := b.deployment().Spec.Template.Spec.Containers[0]
	services := func(unread string, ready bool) error {
		body, err := get(t.Context(), container, "metrics", "/metrics", rest.Config{})
		if err == nil && !strings.Contains(body, `cilium_pool_kinds_unread{kind="Service"} `+unread+"\n") {
			err = errors.New("the gauge is another")
		}
		if not := b.probe(container.ReadinessProbe); (not == nil) != ready {
			err = errors.Join(err, fmt.Errorf("ready: %w", not))
		}
		return errors.Join(err, b.probe(container.LivenessProbe))
	}
	b.Eventually("it may not list Services", func() error { return services("1", false) })
	role.Rules = rules
	b.Must(b.Client.Update(t.Context(), role))
	b.Eventually("it has listed them", func() error { return services("0", true) })
}

// The ServiceAccount of the scheduled check has the rights of docs/reference/check.md, but for those to find the operator's Lease
// elsewhere, and its Job audits a cluster.
func TestScheduledCheck(t *testing.T) {
	const values = "check.cronJob.enabled=true,"
	var roles []*unstructured.Unstructured
	for _, o := range render(t, "--set", values+"mode=multi-pool") {
		if name := o.GetName(); name == release+"-check" || name == release+"-cilium-config" {
			roles = append(roles, o)
		}
	}
	var want []string
	for _, rule := range harness.RoleOfPage(t, "reference/check.md").Rules {
		for _, resource := range rule.Resources {
			want = append(want, right(rule.Verbs[0], rule.APIGroups[0], resource))
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, rightsOf(t, roles)); diff != "" {
		t.Errorf("rights (-docs/reference/check.md +chart):\n%s", diff)
	}

	b := newBed(t, helm4)
	go b.playDeploymentController(t.Context())
	b.ciliumConfig("ipam", "crd")
	b.helmWait("install", release, chart, "--set", values)
	b.startOperator()
	job := &batchv1.CronJob{}
	b.Read(job, namespace, release+"-check")
	pod := job.Spec.JobTemplate.Spec.Template.Spec
	config, err := b.cluster.ConfigFor(t.Context(), namespace, pod.ServiceAccountName)
	b.Must(err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	b.Must(controlplane.WriteKubeconfig(kubeconfig, config))
	out, err := exec.CommandContext(t.Context(), operator(t), append(pod.Containers[0].Args, "--kubeconfig="+kubeconfig)...).CombinedOutput()
	if text := string(out); err != nil || !strings.HasPrefix(text, "0 errors, ") {
		t.Errorf("%v\n%s", err, text)
	}
}

// Beside another IPAM, with one value, the operator counts what that has assigned, and writes nothing
// but its Lease.
func TestObserverWritesItsLeaseAlone(t *testing.T) {
	b := newBed(t, helm4)
	go b.playDeploymentController(t.Context())
	b.ciliumConfig("ipam", "cluster-pool", "enable-ipv4", "true", "cluster-pool-ipv4-cidr", "10.20.0.0/16", "cluster-pool-ipv4-mask-size", "24")
	b.helmWait("install", release, chart, "--set", "mode=observe,metrics.secure=false")
	b.node("n1")
	has := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	has.Spec.IPAM.PodCIDRs = []iputil.Prefix{iputil.PrefixFrom(netip.MustParsePrefix("10.20.7.0/24"))}
	b.Create(has)
	op := b.startOperator()
	b.Eventually("the operator counts", func() error {
		body, err := get(b.Context(), b.deployment().Spec.Template.Spec.Containers[0], "metrics", "/metrics", rest.Config{})
		for _, want := range []string{
			`cilium_pool_node_capacity_addresses{family="ipv4",node="n1"} 254`,
			`cilium_pool_pool_blocks{family="ipv4",pool="cluster-pool",state="free"} 255`,
		} {
			if err == nil && !strings.Contains(body, want) {
				err = fmt.Errorf("it does not serve %s:\n%s", want, op.Log())
			}
		}
		return err
	})
	op.stop()
	used := b.usedRights()
	granted := rightsOf(t, objects(t, b.helm("get", "manifest", release)))
	const lease = "leases.coordination.k8s.io"
	for _, r := range used {
		verb, of, _ := strings.Cut(r, " ")
		if !slices.Contains([]string{"get", "list", "watch"}, verb) && of != lease || !slices.Contains(granted, r) {
			t.Errorf("it used the right %q; granted are %q", r, granted)
		}
	}
	if !slices.Contains(used, "update "+lease) {
		t.Errorf("it used only %q", used)
	}
}

// lifeOfANode makes the operator do everything it can do.
func (b *bed) lifeOfANode() {
	b.Helper()
	b.node("n1")
	machines := fleet.New(b.Client, fleet.Options{Agent: fleet.Quick(), Retry: 200 * time.Millisecond})
	agent := machines.Boot(b.Context(), "n1")
	go machines.Run(b.Context())

	b.Create(&v1alpha1.PodIPPin{
		ObjectMeta: metav1.ObjectMeta{Name: "100.66.224.48-28"}, Spec: v1alpha1.PodIPPinSpec{CIDR: "100.66.224.48/28", NodeName: "later"},
	})
	b.Eventually("a first block is claimed and published", func() error { return b.serves("n1", 1) })
	b.Pods("n1", "few", 20)
	b.Eventually("the node grows", func() error { return b.serves("n1", 2) })
	b.Eventually("the pool says so", func() error {
		if s := b.pool().Status; s.Nodes != 1 || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.PoolReady) {
			return fmt.Errorf("status is %+v", s)
		}
		return nil
	})

	b.Pods("n1", "many", 80)
	b.Eventually("the operator reports a shortage", func() error { return b.short("n1", true) })
	b.DropPods()
	b.Eventually("the operator reports the end of the shortage", func() error { return b.short("n1", false) })

	blocks := b.Blocks("n1") // a block with an address of the agent itself never leaves
	block := &blocks[slices.IndexFunc(blocks, func(p v1alpha1.PodIPBlock) bool {
		return !slices.ContainsFunc(agent.Own(), netip.MustParsePrefix(p.Spec.CIDR).Contains)
	})]
	b.Must(write(b.Context(), b.Client, block, false, `{"spec":{"drain":true}}`))
	b.Gone(block) // by the handshake
	b.node("n2")
	b.Eventually("a node whose agent does not run yet has its CiliumNode", func() error { return b.serves("n2", 1) })
	b.Delete(&ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	b.Eventually("a CiliumNode deleted by hand is restored", func() error { return b.serves("n2", 1) })

	for _, name := range []string{"n1", "n2"} {
		b.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		b.Gone(&ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}})
		b.Eventually("the blocks of a deleted Node go", func() error {
			if blocks := b.Blocks(name); len(blocks) != 0 {
				return fmt.Errorf("%d blocks", len(blocks))
			}
			return nil
		})
	}
	pool := b.pool()
	b.Eventually("a pool without nodes can go", func() error { return b.Client.Delete(b.Context(), pool) })
	b.Gone(pool)
	b.reported(event.ReasonPodAddressShortage, "")
}

// A disabled feature has no rights. TestRightsAreEnoughAndNoMore checks that the remaining
// rights are used, and suffice.
func TestRightsFollowValues(t *testing.T) {
	rights := func(values string) []string { return rightsOf(t, render(t, "-f", writeFile(t, values))) }
	all := rights("nodes: {shortageTaint: a/b}")
	observing := []string{
		"create leases.coordination.k8s.io", "create subjectaccessreviews.authorization.k8s.io", "create tokenreviews.authentication.k8s.io",
		"get configmaps", "get leases.coordination.k8s.io", "list ciliumnodeconfigs.cilium.io", "list ciliumnodes.cilium.io", "list nodes",
		"list podipblocks.cilium-pool.io", "list podippools.cilium-pool.io", "list pods", "update leases.coordination.k8s.io",
		"watch ciliumnodes.cilium.io", "watch nodes", "watch podipblocks.cilium-pool.io", "watch podippools.cilium-pool.io", "watch pods",
	}
	tests := map[string]struct {
		values string
		gone   []string
	}{
		"taint": {"", []string{"patch nodes"}},
		"CiliumNodes": {"mode: kubernetes", []string{
			"create ciliumnodes.cilium.io", "delete ciliumnodes.cilium.io", "list ciliumnodes.cilium.io", "patch ciliumnodes.cilium.io",
			"patch ciliumnodes/status.cilium.io", "watch ciliumnodes.cilium.io"}},
		"observing": {"mode: observe", slices.DeleteFunc(slices.Clone(all), func(r string) bool { return slices.Contains(observing, r) })},
		"condition": {"nodes: {shortageTaint: a/b, condition: false}", []string{"patch nodes/status"}},
		"plain metrics": {"nodes: {shortageTaint: a/b}\nmetrics: {secure: false}", []string{
			"create subjectaccessreviews.authorization.k8s.io", "create tokenreviews.authentication.k8s.io"}},
		"no metrics": {"nodes: {shortageTaint: a/b}\nmetrics: {port: 0}", []string{
			"create subjectaccessreviews.authorization.k8s.io", "create tokenreviews.authentication.k8s.io"}},
		"no election": {"nodes: {shortageTaint: a/b}\nreplicas: 1\nleaderElection: {enabled: false}", []string{
			"create events", "create leases.coordination.k8s.io", "get leases.coordination.k8s.io", "patch events", "update leases.coordination.k8s.io"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			left := rights(test.values)
			gone := slices.DeleteFunc(slices.Clone(all), func(r string) bool { return slices.Contains(left, r) })
			if diff := cmp.Diff(test.gone, gone); diff != "" {
				t.Errorf("rights that went (-want +got):\n%s", diff)
			}
		})
	}
}

// seldom reports whether a short test does not use a right: informers stream what is there, and list
// where an API server cannot do that; an event repeated within minutes is counted up.
func seldom(right string, used []string) bool {
	kind, lists := strings.CutPrefix(right, "list ")
	return lists && slices.Contains(used, "watch "+kind) || strings.HasPrefix(right, "patch events")
}

// right formats one verb on one kind: "patch nodes/status", "get leases.coordination.k8s.io".
func right(verb, group, resource string) string {
	return strings.TrimSuffix(verb+" "+resource+"."+group, ".")
}

// rightsOf returns the rights of the operator's own roles.
func rightsOf(t *testing.T, all []*unstructured.Unstructured) []string {
	t.Helper()
	var found []string
	forPeople := regexp.MustCompile(`-(viewer|editor|metrics-reader|plugin-view|plugin-admin)$`)
	for _, o := range all {
		if kind := o.GetKind(); kind != "ClusterRole" && kind != "Role" || forPeople.MatchString(o.GetName()) {
			continue
		}
		for _, rule := range typed[rbacv1.ClusterRole](t, o).Rules { // a Role has the same shape
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					found = append(found, right(verb, rule.APIGroups[0], resource))
				}
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// usedRights reads the operator's requests from the audit log, and fails if one was denied.
func (b *bed) usedRights() []string {
	b.Helper()
	log := readFile(b.T, filepath.Join(b.cluster.Dir(), "audit.log"))
	used := map[string]bool{}
	for line := range bytes.Lines(log) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // the API server has not written the rest yet
		}
		var request struct {
			Verb, RequestURI string
			User             struct{ Username string }
			ObjectRef        *struct{ APIGroup, Resource, Subresource string }
			ResponseStatus   struct{ Code int }
		}
		if err := json.Unmarshal(line, &request); err != nil {
			b.Fatalf("audit log: %v\n%s", err, line)
		}
		if request.User.Username != fmt.Sprintf("system:serviceaccount:%s:%s", namespace, release) {
			continue
		}
		if code := request.ResponseStatus.Code; code == 401 || code == 403 {
			b.Errorf("%s %s was answered with %d", request.Verb, request.RequestURI, code)
		}
		if o := request.ObjectRef; o != nil {
			used[right(request.Verb, o.APIGroup, strings.TrimSuffix(o.Resource+"/"+o.Subresource, "/"))] = true
		}
	}
	return slices.Sorted(maps.Keys(used))
}

// certificate writes a certificate as a Secret of type kubernetes.io/tls is mounted. It
// returns its folder, and the trust configuration of a scraper that uses the chart's
// ServiceMonitor.
func (b *bed) certificate() (string, rest.TLSClientConfig) {
	b.Helper()
	monitor := ofKind(b.T, render(b.T, "--set", "metrics.certSecret=s,metrics.serviceMonitor.enabled=true"), "ServiceMonitor")[0]
	endpoints, _, _ := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	name, _, err := unstructured.NestedString(endpoints[0].(map[string]any), "tlsConfig", "serverName")
	if err != nil || name == "" {
		b.Fatalf("the ServiceMonitor has no serverName: %v", err)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
	b.Must(err)
	dir := b.TempDir()
	for file, data := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		b.Must(os.WriteFile(filepath.Join(dir, file), data, 0o600))
	}
	return dir, rest.TLSClientConfig{CAData: certificate, ServerName: name}
}

// documented checks that each of the libraries' metrics in docs/reference/metrics.md is among those
// served; the alerts and the dashboard may query these.
func (b *bed) documented(served string) {
	b.Helper()
	_, section, _ := strings.Cut(string(readFile(b.T, root+"/docs/reference/metrics.md")), "\n## From the libraries\n")
	names := regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(section, -1)
	if len(names) == 0 {
		b.Fatal("docs/reference/metrics.md lists no metrics of the libraries")
	}
	for _, name := range names {
		if !strings.Contains(served, "\n# TYPE "+name[1]+" ") {
			b.Errorf("docs/reference/metrics.md says that %s is served; it is not", name[1])
		}
	}
	if want := `leader_election_master_status{name="` + release + `"} 1`; !strings.Contains(served, want) {
		b.Errorf("the alerts ask for %s; it is not served", want)
	}
}

// An operator with the CRDs of another version, and one of a Deployment without the chart's
// tolerations, which could keep it off all Nodes, report it with a kubelet's token and the chart's
// rights, and are Ready.
func TestOperatorReportsItsInstallation(t *testing.T) {
	b := newBed(t, helm4)
	b.helm("install", release, chart, "-f", b.values)
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "podippools.cilium-pool.io"}}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"older"}}}`, crds.SchemaAnnotation)
	b.Must(b.Client.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(patch))))
	b.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "by-hand"}, Spec: b.deployment().Spec.Template.Spec}
	b.pod.Spec.Tolerations = nil
	b.Create(b.pod)
	op := b.startOperator("--metrics-bind-address=0")
	op.logs("add {key: cilium-pool.io/no-addresses, operator: Exists} to its tolerations")
	op.logs("CRD podippools.cilium-pool.io is not the one that this operator was built with (schema served: older;")
	for _, not := range []string{"CRD podipblocks.cilium-pool.io is not the one", "may not read CRD"} {
		if strings.Contains(op.Log(), not) {
			t.Errorf("the log says %q:\n%s", not, op.Log())
		}
	}
}
