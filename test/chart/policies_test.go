package chart

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// attempt is a write, and the message of its refusal; "" if it is allowed.
type attempt struct {
	who    string
	kind   client.Object
	status bool
	// patch is a merge patch of the object n1, or of the block; "": see create and delete.
	patch  string
	create client.Object
	delete client.Object
	want   string
}

const (
	editor   = "editor"       // has all rights
	blocks   = "block-editor" // has only the chart's role of this name
	collects = "system:serviceaccount:kube-system:generic-garbage-collector"
	breaks   = "root" // in a group listed in blocks.groups
	tenant   = "tenant"
)

func operatorAttempts() map[string]attempt {
	node, carrier := &corev1.Node{}, &ciliumv2.CiliumNode{}
	return map[string]attempt{
		"the taint":                 {who: "crd", kind: node, patch: `{"spec":{"taints":[{"key":"other","effect":"NoExecute"},{"key":"x.y/short","effect":"NoSchedule"}]}}`},
		"no taint any more":         {who: "crd", kind: node, patch: `{"spec":{"taints":[{"key":"other","effect":"NoExecute"}]}}`},
		"the taint, which evicts":   {who: "crd", kind: node, patch: `{"spec":{"taints":[{"key":"other","effect":"NoExecute"},{"key":"x.y/short","effect":"NoExecute"}]}}`, want: "only the taint x.y/short"},
		"another taint":             {who: "crd", kind: node, patch: `{"spec":{"taints":[{"key":"other","effect":"NoExecute"},{"key":"mine","effect":"NoSchedule"}]}}`, want: "only the taint x.y/short"},
		"another taint away":        {who: "crd", kind: node, patch: `{"spec":{"taints":null}}`, want: "only the taint x.y/short"},
		"a taint without the value": {who: "kubernetes", kind: node, patch: `{"spec":{"taints":[{"key":"other","effect":"NoExecute"},{"key":"x.y/short","effect":"NoSchedule"}]}}`, want: "nodes.shortageTaint is empty"},
		"cordon":                    {who: "crd", kind: node, patch: `{"spec":{"unschedulable":true}}`, want: "spec of a Node"},
		"a label":                   {who: "crd", kind: node, patch: `{"metadata":{"labels":{"a":"b"}}}`, want: "metadata of a Node"},
		"an annotation":             {who: "crd", kind: node, patch: `{"metadata":{"annotations":{"network.cilium.io/ipv4-pod-cidr":"10.20.0.0/28"}}}`, want: "metadata of a Node"},
		"the podCIDR's annotation":  {who: "kubernetes", kind: node, patch: `{"metadata":{"annotations":{"network.cilium.io/ipv4-pod-cidr":"10.20.0.0/28"}}}`},
		"the mark of a move":        {who: "kubernetes", kind: node, patch: `{"metadata":{"annotations":{"cilium-pool.io/moved":"1"}}}`},
		"another annotation":        {who: "kubernetes", kind: node, patch: `{"metadata":{"annotations":{"a":"b"}}}`, want: "but the annotations network.cilium.io/ipv4-pod-cidr"},
		"another annotation away":   {who: "kubernetes", kind: node, patch: `{"metadata":{"annotations":{"kept":null}}}`, want: "but the annotations"},
		"a finalizer":               {who: "kubernetes", kind: node, patch: `{"metadata":{"finalizers":["a/b"]}}`, want: "metadata of a Node"},
		"the condition":             {who: "crd", kind: node, status: true, patch: `{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"cilium-pool.io/PodAddressShortage","status":"True"}]}}`},
		"another condition":         {who: "crd", kind: node, status: true, patch: `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, want: "no condition of a Node but cilium-pool.io/PodAddressShortage"},
		"all conditions away":       {who: "crd", kind: node, status: true, patch: `{"status":{"conditions":null}}`, want: "no condition of a Node but cilium-pool.io/PodAddressShortage"},
		"an address of a Node":      {who: "crd", kind: node, status: true, patch: `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.9"}]}}`, want: "status of a Node"},
		"the offer":                 {who: "crd", kind: node, status: true, patch: `{"status":{"capacity":{"cilium-pool.io/ipv4":"30"},"allocatable":{"cilium-pool.io/ipv4":"30"}}}`},
		"the offer of a pool":       {who: "multi-pool", kind: node, status: true, patch: `{"status":{"capacity":{"blue.cilium-pool.io/ipv6":"30"}}}`},
		"a resource that looks so":  {who: "crd", kind: node, status: true, patch: `{"status":{"capacity":{"x-cilium-pool.io/ipv4":"30"}}}`, want: "no capacity and no allocatable resource"},
		"another resource":          {who: "crd", kind: node, status: true, patch: `{"status":{"capacity":{"pods":"250"}}}`, want: "no capacity and no allocatable resource"},
		"another resource away":     {who: "crd", kind: node, status: true, patch: `{"status":{"allocatable":{"pods":null}}}`, want: "no capacity and no allocatable resource"},
		"a label, by the status":    {who: "crd", kind: node, status: true, patch: `{"metadata":{"labels":{"a":"b"}}}`, want: "metadata of a Node"},

		"pool and podCIDRs":            {who: "crd", kind: carrier, patch: `{"spec":{"ipam":{"pool":{"10.20.0.2":{}},"podCIDRs":["10.20.0.0/28"]}}}`},
		"allocated CIDRs, in crd mode": {who: "crd", kind: carrier, patch: `{"spec":{"ipam":{"pools":{"allocated":[]}}}}`, want: "only ipam.pool and ipam.podCIDRs"},
		"a person's limit":             {who: "crd", kind: carrier, patch: `{"spec":{"ipam":{"max-allocate":1}}}`, want: "only ipam.pool and ipam.podCIDRs"},
		"addresses of the agent":       {who: "crd", kind: carrier, patch: `{"spec":{"addresses":[{"type":"InternalIP","ip":"192.0.2.9"}]}}`, want: "only ipam.pool and ipam.podCIDRs"},
		"an encryption key":            {who: "crd", kind: carrier, patch: `{"spec":{"encryption":{"key":3}}}`, want: "only ipam.pool and ipam.podCIDRs"},
		"labels of a CiliumNode":       {who: "crd", kind: carrier, patch: `{"metadata":{"labels":{"a":"b"}}}`, want: "metadata of a CiliumNode"},
		"annotations of a CiliumNode":  {who: "crd", kind: carrier, patch: `{"metadata":{"annotations":{"a":"b"}}}`, want: "metadata of a CiliumNode"},
		"marks and withdrawn answers":  {who: "crd", kind: carrier, status: true, patch: `{"status":{"ipam":{"release-ips":{"10.20.0.1":"marked-for-release","10.20.0.5":null}}}}`},
		"an agent's address retired":   {who: "crd", kind: carrier, status: true, patch: `{"status":{"ipam":{"release-ips":{"10.20.0.1":"released"}}}}`},
		"one retired outside the pool": {who: "crd", kind: carrier, status: true, patch: `{"status":{"ipam":{"release-ips":{"10.20.0.6":"released"}}}}`, want: "to retire addresses of spec.ipam.pool"},
		"an agent's answer":            {who: "crd", kind: carrier, status: true, patch: `{"status":{"ipam":{"release-ips":{"10.20.0.4":"ready-for-release"}}}}`, want: "only ipam.release-ips"},
		"an agent's report":            {who: "crd", kind: carrier, status: true, patch: `{"status":{"ipam":{"used":null}}}`, want: "only ipam.release-ips"},
		"a Node's CiliumNode": {who: "crd", create: &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{
			Name: "n2", Labels: map[string]string{"a": "b"}, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n2", UID: "u"}},
		}}},
		"a CiliumNode of no Node": {who: "crd", create: &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n3"}}, want: "only for the Node of its name"},

		"allocated CIDRs":           {who: "multi-pool", kind: carrier, patch: `{"spec":{"ipam":{"pools":{"allocated":[{"pool":"default","cidrs":["10.20.0.0/28"]}]}}}}`},
		"what an agent requests":    {who: "multi-pool", kind: carrier, patch: `{"spec":{"ipam":{"pools":{"requested":[]}}}}`, want: "only ipam.pools.allocated"},
		"pool, in multi-pool mode":  {who: "multi-pool", kind: carrier, patch: `{"spec":{"ipam":{"pool":{"10.20.0.3":{}}}}}`, want: "only ipam.pools.allocated"},
		"retired, in that mode":     {who: "multi-pool", kind: carrier, status: true, patch: `{"status":{"ipam":{"release-ips":{"10.20.0.1":"released"}}}}`, want: "only ipam.release-ips"},
		"marks, in multi-pool mode": {who: "multi-pool", kind: carrier, status: true, patch: `{"status":{"ipam":{"release-ips":{"192.0.2.1":"marked-for-release"}}}}`},
	}
}

func blockAttempts() map[string]attempt {
	block := &v1alpha1.PodIPBlock{}
	adopted := newBlock("10.20.1.0/28", v1alpha1.Finalizer)
	adopted.Labels = map[string]string{v1alpha1.AdoptedLabel: "cluster-pool"}
	const (
		torn  = `{"metadata":{"finalizers":null}}`
		label = `{"metadata":{"labels":{"cilium-pool.io/adopted-from":"cluster-pool"}}}`
		drain = `{"status":{"conditions":[{"type":"Draining","status":"True","reason":"Deleted","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
		also  = `{"metadata":{"finalizers":["cilium-pool.io/in-use","foregroundDeletion","example.org/x"]}}`
		own   = `{"metadata":{"finalizers":["cilium-pool.io/in-use"]}}`
	)
	strange := newBlock("10.20.4.0/28")
	strange.Labels = map[string]string{v1alpha1.AdoptedLabel: "elsewhere"}
	return map[string]attempt{
		"adopting a block":                {who: editor, create: adopted},
		"adopting without the verb":       {who: blocks, create: adopted, want: "needs the verb adopt on podipblocks.cilium-pool.io"},
		"adopting from elsewhere":         {who: editor, create: strange, want: "Its value is cluster-pool, multi-pool, kubernetes or crd"},
		"the label without the verb":      {who: blocks, kind: block, patch: label, want: "is for kubectl cilium-pool migrate"},
		"another label":                   {who: blocks, kind: block, patch: `{"metadata":{"labels":{"a":"b"}}}`},
		"creating a block":                {who: editor, create: newBlock("10.20.3.0/28"), want: "create a PodIPPin, with the block's cidr and the nodeName"},
		"creating a block, by an admin":   {who: breaks, create: newBlock("10.20.3.0/28")},
		"pinning a block":                 {who: editor, create: newPin("10.20.3.16/28", "n1")},
		"a label of migrate":              {who: editor, kind: block, patch: label},
		"finishing a move":                {who: editor, kind: block, patch: `{"metadata":{"labels":{"cilium-pool.io/adopted-from":null}}}`},
		"draining a block":                {who: editor, kind: block, patch: `{"spec":{"drain":true}}`},
		"deleting a block":                {who: breaks, delete: newBlock("10.20.0.0/28"), want: "kubectl cilium-pool drain 10.20.0.0-28. To delete it all the same, first: kubectl annotate podipblock 10.20.0.0-28 cilium-pool.io/allow-delete=true"},
		"deleting a block, allowed":       {who: editor, delete: newBlock("10.20.2.0/28")},
		"freeing a block":                 {who: "crd", delete: newBlock("10.20.0.0/28")},
		"deleting a pool in use":          {who: breaks, delete: poolNamed("used"), want: "kubectl cilium-pool drain used. To delete"},
		"deleting a pool that drains":     {who: editor, delete: poolNamed("drains")},
		"deleting an unused pool":         {who: editor, delete: poolNamed("unused")},
		"deleting a pool, allowed":        {who: editor, delete: poolNamed("allowed")},
		"another finalizer":               {who: collects, kind: block, patch: also},
		"another finalizer away":          {who: collects, kind: block, patch: own},
		"our finalizer, by an editor":     {who: editor, kind: block, patch: torn, want: `"Override a policy"`},
		"our finalizer, by the collector": {who: collects, kind: block, patch: torn, want: "taken off by cilium-pool-operator alone"},
		"our finalizer, by an admin":      {who: breaks, kind: block, patch: torn},
		"our finalizer, by the operator":  {who: "crd", kind: block, patch: torn},
		"the status, by an editor":        {who: editor, kind: block, status: true, patch: drain, want: "written by cilium-pool-operator alone"},
		"the status, by the operator":     {who: "crd", kind: block, status: true, patch: drain},
	}
}

func poolNamed(name string) *v1alpha1.PodIPPool {
	return &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// deletable creates the objects that the attempts delete, but for the block of all.
func (b *bed) deletable() {
	b.Helper()
	allowed := map[string]string{v1alpha1.AllowDeleteAnnotation: "true"}
	block := newBlock("10.20.2.0/28")
	block.Annotations = allowed
	b.Create(block)
	for _, name := range []string{"used", "drains", "unused", "allowed"} {
		pool := poolNamed(name)
		pool.Spec.IPv4 = &v1alpha1.IPv4Ranges{CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.20.0.0/24", AllocationPolicy: v1alpha1.AllocationAllocate}}, BlockSize: 28}
		switch name {
		case "drains":
			pool.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
		case "allowed":
			pool.Annotations = allowed
		}
		b.Create(pool)
		if name != "unused" {
			b.Must(write(b.Context(), b.Client, pool, true, `{"status":{"nodes":1}}`))
		}
	}
}

// podAttempts are those of the example policy.
func podAttempts() map[string]attempt {
	pod := func(node string) *corev1.Pod { return harness.BoundPod(node, "p-", nil) }
	return map[string]attempt{
		"a pod of a tenant on a node":     {who: tenant, create: pod("n1"), want: "leave it to the scheduler"},
		"a pod of a tenant":               {who: tenant, create: pod("")},
		"a pod of a controller on a node": {who: collects, create: pod("n1")},
	}
}

// policyBed installs the example policy, and that of each mode for a ServiceAccount of that name, and
// grants all rights to all users.
func policyBed(t *testing.T) *bed {
	b := newBed(t, helm4)
	harness.Must(t, b.cluster.InstallCRDs(t.Context(), ownCRDs(t)...))
	for mode, more := range map[string]string{
		"crd": "nodes.shortageTaint=x.y/short", "multi-pool": "admissionPolicies.blocks.enabled=false", "kubernetes": "admissionPolicies.blocks.enabled=false",
	} {
		for _, o := range render(t, "--set", "fullnameOverride="+mode+",mode="+mode+",admissionPolicies.blocks.groups={breakers,system:masters},"+more) {
			if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") || o.GetName() == "crd-podipblock-editor" {
				b.Create(o)
			}
		}
	}
	for _, o := range readObjects(t, examples+"/admission-nodename.yaml") {
		b.Create(o)
	}
	// RBAC allows all others everything, so that only the policies refuse.
	all := harness.Bind("cluster-admin", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "all"})
	all.Name = "all"
	b.Create(all)
	b.Create(harness.Bind("crd-podipblock-editor", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: blocks}))
	return b
}

func (b *bed) as(user string, groups ...string) client.Client {
	b.Helper()
	config := rest.CopyConfig(b.cluster.Config())
	if user != blocks {
		groups = append(groups, "all")
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	c, err := client.New(config, client.Options{Scheme: b.Client.Scheme()})
	b.Must(err)
	return c
}

// objectsOfAttempts returns the objects that the attempts write.
func (b *bed) objectsOfAttempts() []client.Object {
	b.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{"kept": "yes"}}}
	carrier := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	block := newBlock("10.20.0.0/28", v1alpha1.Finalizer, "foregroundDeletion")
	for _, o := range []client.Object{node, carrier, block} {
		b.Create(o)
	}
	set := func(o client.Object, status bool, patch string) {
		b.Helper()
		b.Must(write(b.Context(), b.Client, o, status, patch))
	}
	set(node, false, `{"spec":{"taints":[{"key":"other","effect":"NoExecute"}]}}`)
	set(node, true, `{"status":{"capacity":{"pods":"110"},"allocatable":{"pods":"110"},"conditions":[{"type":"Ready","status":"True"}]}}`)
	set(carrier, false, `{"spec":{"ipam":{"pool":{"10.20.0.1":{}},"pools":{"requested":[{"pool":"default","needed":{"ipv4-addrs":8}}]}}}}`)
	set(carrier, true, `{"status":{"ipam":{"used":{"10.20.0.1":{"owner":"router"}},"release-ips":{"10.20.0.4":"marked-for-release","10.20.0.5":"ready-for-release"}}}}`)
	return []client.Object{node, carrier, block}
}

func newBlock(cidr string, finalizers ...string) *v1alpha1.PodIPBlock {
	return &v1alpha1.PodIPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(cidr, "/", "-"), Finalizers: finalizers},
		Spec:       v1alpha1.PodIPBlockSpec{CIDR: cidr, PoolName: "p", NodeName: "n1"},
	}
}

func newPin(cidr, node string) *v1alpha1.PodIPPin {
	return &v1alpha1.PodIPPin{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(cidr, "/", "-")}, Spec: v1alpha1.PodIPPinSpec{CIDR: cidr, NodeName: node},
	}
}

func write(ctx context.Context, c client.Client, o client.Object, status bool, patch string) error {
	raw := client.RawPatch(types.MergePatchType, []byte(patch))
	if status {
		return c.Status().Patch(ctx, o, raw)
	}
	return c.Patch(ctx, o, raw)
}

// The policies allow the writes of the operator, the plugin, users with the editor roles and
// Kubernetes' controllers, and refuse all others with a reason.
func TestPolicies(t *testing.T) {
	b := policyBed(t)
	clients := map[string]client.Client{
		editor: b.as(editor), blocks: b.as(blocks), collects: b.as(collects, "system:serviceaccounts:kube-system"), breaks: b.as(breaks, "breakers"), tenant: b.as(tenant),
	}
	for _, mode := range []string{"crd", "multi-pool", "kubernetes"} {
		clients[mode] = b.as("system:serviceaccount:kube-system:"+mode, "system:serviceaccounts")
	}
	objects := b.objectsOfAttempts()
	b.deletable()
	attempts := operatorAttempts()
	maps.Copy(attempts, blockAttempts())
	maps.Copy(attempts, podAttempts())
	for _, name := range []string{"a label", "another annotation", "labels of a CiliumNode", "what an agent requests", "the status, by an editor", "deleting a block", "deleting a pool in use", "a pod of a tenant on a node"} {
		b.Eventually("a policy is in force", func() error {
			a := attempts[name]
			if err := a.try(b.Context(), clients[a.who], objects); !apierrors.IsForbidden(err) {
				return fmt.Errorf("%s got %v", a.who, err)
			}
			return nil
		})
	}
	try := func(t *testing.T, test attempt) {
		t.Helper()
		err := test.try(t.Context(), clients[test.who], objects)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("refused: %v", err)
		case test.want != "" && (err == nil || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("got %v, want a refusal that says %q", err, test.want)
		}
	}
	for name, test := range attempts {
		t.Run(name, func(t *testing.T) { try(t, test) })
	}
	b.Must(write(b.Context(), b.Client, objects[2], false, `{"metadata":{"annotations":{"cilium-pool.io/allow-delete":"true"}}}`))
	b.Delete(objects[2])
	t.Run("a label of a block that drains", func(t *testing.T) { try(t, attempts["a label of migrate"]) })
}

// try makes a dry run: the API server applies its policies to it, too.
func (a *attempt) try(ctx context.Context, c client.Client, objects []client.Object) error {
	c = client.NewDryRunClient(c)
	if a.create != nil {
		return c.Create(ctx, a.create.DeepCopyObject().(client.Object))
	}
	if a.delete != nil {
		return c.Delete(ctx, a.delete.DeepCopyObject().(client.Object))
	}
	i := slices.IndexFunc(objects, func(o client.Object) bool { return fmt.Sprintf("%T", o) == fmt.Sprintf("%T", a.kind) })
	return write(ctx, c, objects[i].DeepCopyObject().(client.Object), a.status, a.patch)
}

// mutates is the API that Helm finds in a cluster of Kubernetes 1.36.
const mutates = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"

// requestsOf returns the numbers of addresses that the containers of a pod request, init containers
// first: IPv4 and IPv6. Limits must be equal.
func requestsOf(t *testing.T, pod *corev1.Pod) [][2]int64 {
	t.Helper()
	var out [][2]int64
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		requests, limits := c.Resources.Requests, c.Resources.Limits
		of := func(list corev1.ResourceList, name corev1.ResourceName) int64 {
			quantity := list[name]
			return quantity.Value()
		}
		for _, name := range []corev1.ResourceName{v1alpha1.IPv4Resource, v1alpha1.IPv6Resource} {
			if of(requests, name) != of(limits, name) {
				t.Errorf("container %s requests %v, limited to %v", c.Name, requests, limits)
			}
		}
		out = append(out, [2]int64{of(requests, v1alpha1.IPv4Resource), of(requests, v1alpha1.IPv6Resource)})
	}
	return out
}

// requesting installs the policies of a mode that make pods request addresses, and returns a function
// that creates a pod, changed by a YAML text, in a dry run.
func (b *bed) requesting(mode string) (create func(change string) (*corev1.Pod, error)) {
	t := b.T
	t.Helper()
	for _, o := range render(t, "--set", "scheduling.enabled=true,scheduling.families={ipv4,ipv6},mode="+mode, "--api-versions", mutates) {
		if kind := o.GetKind(); kind == "MutatingAdmissionPolicy" || kind == "MutatingAdmissionPolicyBinding" {
			b.Create(o)
		}
	}
	dry := client.NewDryRunClient(b.Client)
	create = func(change string) (*corev1.Pod, error) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
		p.Spec.Containers = []corev1.Container{{Name: "c", Image: "none"}}
		b.Must(yaml.UnmarshalStrict([]byte(change), p))
		return p, dry.Create(t.Context(), p)
	}
	b.Eventually("the policies are in force", func() error {
		p, err := create("")
		if err == nil && !slices.Equal(requestsOf(t, p), [][2]int64{{1, 1}}) {
			err = fmt.Errorf("requests %v", p.Spec.Containers[0].Resources.Requests)
		}
		return err
	})
	return create
}

// In multi-pool mode pods request an address of the Cilium pool that annotations name, and none where
// no policy can know the pool, or its name makes no resource. None of them keeps a pod out.
func TestPodsRequestAddressesOfCiliumPools(t *testing.T) {
	b := newBed(t, helm4)
	create := b.requesting("multi-pool")
	b.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "green", Annotations: map[string]string{"ipam.cilium.io/ip-pool": "green"}}})
	const v4, v6 = "cilium-pool.io/ipv4", "cilium-pool.io/ipv6"
	for name, test := range map[string]struct {
		in, annotations string
		want            []string
	}{
		"none":                       {"default", "", []string{v4, v6}},
		"the default pool":           {"default", "ipam.cilium.io/ip-pool: default", []string{v4, v6}},
		"a pool":                     {"default", "ipam.cilium.io/ip-pool: blue", []string{"blue." + v4, "blue." + v6}},
		"a pool for a family":        {"default", "ipam.cilium.io/ip-pool: blue, ipam.cilium.io/ipv6-pool: red", []string{"blue." + v4, "red." + v6}},
		"of the namespace":           {"green", "", []string{"green." + v4, "green." + v6}},
		"the pod's own comes first":  {"green", "ipam.cilium.io/ipv4-pool: default", []string{v4, "green." + v6}},
		"only a selector may choose": {"default", "ipam.cilium.io/require-pool-match: 'true'", nil},
		"of one pod":                 {"default", "ipam.cilium.io/ip-pool: web-0.shop.pod.cilium-pool.io", nil},
		"a name that is none":        {"default", "ipam.cilium.io/ip-pool: No_Pool/", nil},
		"a name that is too long":    {"default", "ipam.cilium.io/ip-pool: " + strings.Repeat("a", 201), nil},
		"a name with dots":           {"default", "ipam.cilium.io/ip-pool: a.b", []string{"a.b." + v4, "a.b." + v6}},
		"a reserved name":            {"default", "ipam.cilium.io/ip-pool: requests", nil},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := create("metadata: {namespace: " + test.in + ", annotations: {" + test.annotations + "}}")
			harness.Must(t, err)
			got := p.Spec.Containers[0].Resources
			var names []string
			for resource, n := range got.Requests {
				names = append(names, string(resource))
				if limit := got.Limits[resource]; n.Value() != 1 || limit.Value() != 1 {
					t.Errorf("requests %v, limited to %v", got.Requests, got.Limits)
				}
			}
			slices.Sort(names)
			if !slices.Equal(names, test.want) {
				t.Errorf("requests %v, want %v", names, test.want)
			}
		})
	}
}

// The policies add a request of each family to the first container of pods on the pod network,
// and do not change existing requests.
func TestPodsRequestAddresses(t *testing.T) {
	create := newBed(t, helm4).requesting("crd")
	const (
		container = "name: c, image: none"
		one       = "resources: {requests: {cilium-pool.io/ipv4: 1}, limits: {cilium-pool.io/ipv4: 1}}"
	)
	for name, test := range map[string]struct {
		change string
		want   [][2]int64
	}{
		"plain":                          {"", [][2]int64{{1, 1}}},
		"several containers":             {"spec: {containers: [{" + container + "}, {name: d, image: none}]}", [][2]int64{{1, 1}, {0, 0}}},
		"init containers and sidecars":   {"spec: {initContainers: [{name: i, image: none}, {name: s, image: none, restartPolicy: Always}]}", [][2]int64{{0, 0}, {0, 0}, {1, 1}}},
		"requests of its own":            {"spec: {containers: [{" + container + ", resources: {requests: {cpu: 1}}}]}", [][2]int64{{1, 1}}},
		"a request of one family":        {"spec: {containers: [{" + container + ", " + strings.ReplaceAll(one, ": 1", ": 2") + "}]}", [][2]int64{{2, 1}}},
		"a request of no address":        {"spec: {containers: [{" + container + ", " + strings.ReplaceAll(one, ": 1", ": 0") + "}]}", [][2]int64{{0, 1}}},
		"a request of another container": {"spec: {containers: [{" + container + "}, {name: d, image: none, " + one + "}]}", [][2]int64{{0, 1}, {1, 0}}},
		"a request of an init container": {"spec: {initContainers: [{name: i, image: none, " + one + "}]}", [][2]int64{{1, 0}, {0, 1}}},
		"the host network":               {"spec: {hostNetwork: true}", [][2]int64{{0, 0}}},
		"the label":                      {"metadata: {labels: {" + v1alpha1.NoRequestLabel + ": 'true'}}", [][2]int64{{0, 0}}},
		"the label, false":               {"metadata: {labels: {" + v1alpha1.NoRequestLabel + ": 'false'}}", [][2]int64{{1, 1}}},
		"a static pod's mirror":          {"{metadata: {annotations: {" + corev1.MirrorPodAnnotationKey + ": hash}}, spec: {nodeName: n1}}", [][2]int64{{0, 0}}},
		"of a DaemonSet": {`{metadata: {ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: u, controller: true}]},
			spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
				{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]}}}}}`, [][2]int64{{1, 1}}},
		"bound by hand": {"spec: {nodeName: n1}", [][2]int64{{1, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := create(test.change)
			harness.Must(t, err)
			if diff := cmp.Diff(test.want, requestsOf(t, p)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if cpu := p.Spec.Containers[0].Resources.Requests.Cpu(); name == "requests of its own" && cpu.Value() != 1 {
				t.Errorf("the request for CPU is gone: %v", p.Spec.Containers[0].Resources)
			}
		})
	}
}
