package plugin

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/rogpeppe/go-internal/testscript"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// arguments checks the number of arguments.
func arguments(ts *testscript.TestScript, neg bool, args []string, least int, usage string) {
	if neg || len(args) < least {
		ts.Fatalf("usage: %s", usage)
	}
}

func (w *world) create(ts *testscript.TestScript, o client.Object) {
	ts.Check(w.client.Create(w.ctx, o))
}

func (w *world) updateStatus(ts *testscript.TestScript, o client.Object) {
	ts.Check(w.client.Status().Update(w.ctx, o))
}

// pool NAME BITS CIDR... creates an IPv4 pool for nodes with the label pool=NAME.
func (w *world) cmdPool(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, "pool NAME BITS CIDR...")
	bits, err := strconv.Atoi(args[1])
	ts.Check(err)
	p := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: args[0]}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": args[0]}}
	p.Annotations = map[string]string{v1alpha1.TrustedLabelsAnnotation: "true"}
	p.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: int32(bits)}
	for _, c := range args[2:] {
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: c})
	}
	w.create(ts, p)
	p.Status.ObservedGeneration = p.Generation
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolReady, Status: metav1.ConditionTrue, Reason: "Serving", LastTransitionTime: metav1.Now()}}
	w.updateStatus(ts, p)
}

// node NAME POOL [CIDR...] creates a Node with an agent that has been Ready for an hour, and
// its CiliumNode with these blocks. The first has the router's address.
func (w *world) cmdNode(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "node NAME POOL [CIDR...]")
	name, pool := args[0], args[1]
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}}}
	w.create(ts, node)
	number := name[strings.LastIndexByte(name, '-')+1:]
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.0." + strings.TrimLeft(number, "0")}}
	w.updateStatus(ts, node)
	w.agent(ts, name)
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{}
	for _, cidr := range args[2:] {
		w.cmdBlock(ts, false, []string{name, pool, cidr})
		p := netip.MustParsePrefix(cidr)
		cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(p))
		for a := p.Addr().Next(); p.Contains(a.Next()); a = a.Next() {
			cn.Spec.IPAM.Pool[a.String()] = ipamtypes.AllocationIP{}
		}
	}
	w.create(ts, cn)
	if len(args) > 2 {
		w.use(ts, name, netip.MustParsePrefix(args[2]).Addr().Next().String(), "router")
	}
}

func (w *world) agent(ts *testscript.TestScript, node string) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-" + node, Labels: map[string]string{"k8s-app": "cilium"}},
		Spec:       corev1.PodSpec{NodeName: node, HostNetwork: true, Containers: []corev1.Container{{Name: "cilium-agent", Image: "none"}}},
	}
	w.create(ts, p)
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
	}}
	w.updateStatus(ts, p)
}

// use makes the agent of a node report an address.
func (w *world) use(ts *testscript.TestScript, node, address, owner string) {
	cn := &ciliumv2.CiliumNode{}
	ts.Check(w.client.Get(w.ctx, types.NamespacedName{Name: node}, cn))
	if cn.Status.IPAM.Used == nil {
		cn.Status.IPAM.Used = ipamtypes.AllocationMap{}
	}
	cn.Status.IPAM.Used[address] = ipamtypes.AllocationIP{Owner: owner}
	w.updateStatus(ts, cn)
}

// pod NAME NODE [ADDRESS] creates a pod, and makes its agent report its address.
func (w *world) cmdPod(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "pod NAME NODE [ADDRESS]")
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: args[0]},
		Spec:       corev1.PodSpec{NodeName: args[1], Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	w.create(ts, p)
	if len(args) < 3 {
		return
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.PodIP, p.Status.PodIPs = args[2], []corev1.PodIP{{IP: args[2]}}
	p.Status.StartTime = &metav1.Time{Time: time.Now()}
	w.updateStatus(ts, p)
	w.use(ts, args[1], args[2], "default/"+args[0])
}

// waiting NAME POOL [MESSAGE...] creates a pod that requests an address and suits the nodes of
// a pool, with the scheduler's reason why it is pending.
func (w *world) cmdWaiting(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "waiting NAME POOL [MESSAGE...]")
	one := corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("1")}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: args[0]},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"pool": args[1]},
			Tolerations:  []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists}}, // there is no kubelet
			Containers:   []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Requests: one, Limits: one}}},
		},
	}
	w.create(ts, p)
	if len(args) > 2 {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: strings.Join(args[2:], " "),
		}}
		w.updateStatus(ts, p)
	}
}

// block NODE POOL CIDR creates a block.
func (w *world) cmdBlock(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, "block NODE POOL CIDR")
	w.create(ts, crd.NewBlock(netip.MustParsePrefix(args[2]), args[1], args[0], ""))
}

// apply FILE creates the objects of a file.
func (w *world) cmdApply(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, "apply FILE")
	for _, doc := range strings.Split(ts.ReadFile(args[0]), "\n---\n") {
		obj := &unstructured.Unstructured{}
		ts.Check(yaml.Unmarshal([]byte(doc), &obj.Object))
		status, hasStatus := obj.Object["status"]
		w.create(ts, obj)
		if hasStatus {
			obj.Object["status"] = status
			w.updateStatus(ts, obj)
		}
	}
}

// entry NODE ADDRESS... STATE sets release entries of a CiliumNode.
func (w *world) cmdEntry(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: entry NODE ADDRESS... STATE")
	}
	cn := &ciliumv2.CiliumNode{}
	ts.Check(w.client.Get(w.ctx, types.NamespacedName{Name: args[0]}, cn))
	if cn.Status.IPAM.ReleaseIPs == nil {
		cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{}
	}
	last := len(args) - 1
	for _, address := range args[1:last] {
		cn.Status.IPAM.ReleaseIPs[address] = ipamtypes.IPReleaseStatus(args[last])
	}
	w.updateStatus(ts, cn)
}

// budget APP ALLOWED creates a PodDisruptionBudget for pods with the label app=APP, or changes the
// number of disruptions it allows.
func (w *world) cmdBudget(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "budget APP ALLOWED")
	allowed, err := strconv.ParseInt(args[1], 10, 32)
	ts.Check(err)
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: args[0]}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": args[0]}}
	if err := w.client.Create(w.ctx, b); apierrors.IsAlreadyExists(err) {
		ts.Check(w.client.Get(w.ctx, client.ObjectKeyFromObject(b), b))
	} else {
		ts.Check(err)
	}
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: int32(allowed), DesiredHealthy: 1, ExpectedPods: 1}
	w.updateStatus(ts, b)
}

// phase CIDR draining|cooling REASON sets the phase of a block.
func (w *world) cmdPhase(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, "phase CIDR draining|cooling REASON")
	b := &v1alpha1.PodIPBlock{}
	ts.Check(w.client.Get(w.ctx, types.NamespacedName{Name: crd.BlockName(netip.MustParsePrefix(args[0]))}, b))
	phase := ipalloc.Draining
	if args[1] == "cooling" {
		phase = ipalloc.CoolingDown
	}
	crd.SetBlockPhase(b, phase, expand.Reason(args[2]), "", time.Now().Add(-time.Second))
	w.updateStatus(ts, b)
}

// waits CIDR KIND NOTE sets what the operator says that a block waits for.
func (w *world) cmdWaits(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, "waits CIDR KIND NOTE")
	b := &v1alpha1.PodIPBlock{}
	ts.Check(w.client.Get(w.ctx, types.NamespacedName{Name: crd.BlockName(netip.MustParsePrefix(args[0]))}, b))
	crd.SetBlockObstacle(b, expand.Obstacle{Reason: expand.WaitReason(args[1]), Request: expand.CIDRDraining, Note: args[2]}, "", time.Now().Add(-time.Second))
	w.updateStatus(ts, b)
}

// lease NAME [AGO] [MODE] [SETTINGS] creates the Lease of a leader that renewed it that long
// ago. SETTINGS is JSON that overrides its default settings; "-": it publishes none.
func (w *world) cmdLease(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, "lease HOLDER [AGO] [MODE] [SETTINGS] [NAMESPACE/NAME]")
	ago := time.Duration(0)
	if len(args) > 1 {
		var err error
		ago, err = time.ParseDuration(args[1])
		ts.Check(err)
	}
	var labels map[string]string
	if len(args) > 2 && args[2] != "-" {
		labels = map[string]string{v1alpha1.ModeLabel: args[2]}
	}
	settings := config.DefaultSettings()
	settings.Version = "v0.0.0-operator"
	published, err := settings.Publish()
	ts.Check(err)
	annotations := map[string]string{v1alpha1.SettingsAnnotation: published}
	if len(args) > 3 && args[3] == "-" {
		annotations = nil
	} else if len(args) > 3 {
		annotations[v1alpha1.SettingsAnnotation] = args[3]
	}
	namespace, name := "kube-system", "cilium-pool-operator"
	if len(args) > 4 {
		namespace, name, _ = strings.Cut(args[4], "/")
	}
	at := metav1.NewMicroTime(time.Now().Add(-ago))
	w.create(ts, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, Annotations: annotations},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &args[0], AcquireTime: &at, RenewTime: &at, LeaseDurationSeconds: ptr.To[int32](3600),
		},
	})
}

// annotate KEY VALUE annotates each pool.
func (w *world) cmdAnnotate(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "annotate KEY VALUE")
	pools := &v1alpha1.PodIPPoolList{}
	ts.Check(w.client.List(w.ctx, pools))
	for i := range pools.Items {
		pools.Items[i].Annotations = map[string]string{args[0]: args[1]}
		ts.Check(w.client.Update(w.ctx, &pools.Items[i]))
	}
}

// owner NODE ADDRESS OWNER makes the agent of a node report an address of an owner, which is
// quoted as in Go.
func (w *world) cmdOwner(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, "owner NODE ADDRESS OWNER")
	owner, err := strconv.Unquote(args[2])
	ts.Check(err)
	w.use(ts, args[0], args[1], owner)
}

// unlease deletes the Lease.
func (w *world) cmdUnlease(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 0, "unlease")
	ts.Check(w.client.Delete(w.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-pool-operator"}}))
}

var (
	seconds = regexp.MustCompile(`\b\d{1,3}s\b`)
	instant = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*Z"`)
)

// plain writes the last output to the file got. It replaces ages in seconds by 0s, and runs of
// spaces, as their lengths depend on ages, by two spaces.
func cmdPlain(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, "plain stdout|stderr")
	out := seconds.ReplaceAllString(ts.ReadFile(args[0]), "0s")
	out = instant.ReplaceAllString(out, `"TIME"`)
	var lines []string
	for line := range strings.Lines(out) {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		rest := regexp.MustCompile(` {2,}`).ReplaceAllString(strings.TrimSpace(line), "  ")
		lines = append(lines, strings.TrimRight(indent+rest, " "))
	}
	ts.Check(writeFile(ts.MkAbs("got"), strings.Join(lines, "\n")+"\n"))
}

// exits CODE COMMAND... runs a command that must exit with a code.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "exits CODE COMMAND...")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got, failed := 0, &exec.ExitError{}
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &failed) {
		got = failed.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// less [RESOURCE...] gives the user less the rights to read of the chart's role, without these resources; none: without events.
func (w *world) cmdLess(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 0, "less [RESOURCE...]")
	if len(args) == 0 {
		args = []string{"events"}
	}
	role := &rbacv1.ClusterRole{}
	ts.Check(w.client.Get(w.ctx, client.ObjectKey{Name: "cilium-pool-operator-plugin-view"}, role))
	less := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "less"}, Rules: role.Rules}
	for i := range less.Rules {
		less.Rules[i].Resources = slices.DeleteFunc(less.Rules[i].Resources, func(r string) bool { return slices.Contains(args, r) })
	}
	less.Rules = slices.DeleteFunc(less.Rules, func(r rbacv1.PolicyRule) bool { return len(r.Resources) == 0 })
	ts.Check(client.IgnoreNotFound(w.client.Delete(w.ctx, &rbacv1.ClusterRole{ObjectMeta: less.ObjectMeta})))
	w.create(ts, less)
	ts.Check(client.IgnoreAlreadyExists(w.client.Create(w.ctx, harness.Bind("less", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "less"}))))
	w.knows(ts, args[0])
}

// knows waits until the API server, which reads roles from a cache, refuses the user less a list of a resource and
// grants it PodIPPools.
func (w *world) knows(ts *testscript.TestScript, refused string) {
	group := map[string]string{"ciliumnodes": "cilium.io"}
	harness.Eventually(w.tb, "the API server knows the role", func() error {
		for resource, of := range map[string]string{refused: group[refused], "podippools": "cilium-pool.io"} {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "less", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Group: of, Resource: resource},
			}}
			if err := w.client.Create(w.ctx, review); err != nil {
				return err
			}
			if review.Status.Allowed != (resource == "podippools") {
				return fmt.Errorf("%s: allowed is %t", resource, review.Status.Allowed)
			}
		}
		return nil
	})
}

// admin runs the following commands with the rights to change the cluster.
func (w *world) cmdAdmin(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 0, "admin")
	ts.Setenv("KUBECONFIG", w.changer)
	fmt.Fprintln(ts.Stdout(), "as administrator")
}

func writeFile(path, content string) error { return os.WriteFile(path, []byte(content), 0o600) }
