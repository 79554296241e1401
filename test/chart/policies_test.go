package chart

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
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
	want   string
}

func cilium(mode string) string { return "system:serviceaccount:kube-system:" + mode }

const (
	editor   = "editor" // has the chart's editor roles
	collects = "system:serviceaccount:kube-system:generic-garbage-collector"
	breaks   = "root" // in a group listed in blocks.groups
	ofBlock  = "10.20.0.0-28"
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
		"the condition":             {who: "crd", kind: node, status: true, patch: `{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"PodAddressShortage","status":"True"}]}}`},
		"another condition":         {who: "crd", kind: node, status: true, patch: `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, want: "no condition of a Node but PodAddressShortage"},
		"all conditions away":       {who: "crd", kind: node, status: true, patch: `{"status":{"conditions":null}}`, want: "no condition of a Node but PodAddressShortage"},
		"an address of a Node":      {who: "crd", kind: node, status: true, patch: `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.9"}]}}`, want: "status of a Node"},
		"the offer":                 {who: "crd", kind: node, status: true, patch: `{"status":{"capacity":{"cilium-pool.io/ipv4":"30"},"allocatable":{"cilium-pool.io/ipv4":"30"}}}`},
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
	const (
		torn  = `{"metadata":{"finalizers":null}}`
		label = `{"metadata":{"labels":{"cilium-pool.io/adopted-from":"cluster-pool"}}}`
		drain = `{"status":{"conditions":[{"type":"Draining","status":"True","reason":"Deleted","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
		also  = `{"metadata":{"finalizers":["cilium-pool.io/in-use","foregroundDeletion","example.org/x"]}}`
		own   = `{"metadata":{"finalizers":["cilium-pool.io/in-use"]}}`
	)
	return map[string]attempt{
		"a label of migrate":              {who: editor, kind: block, patch: label},
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

// policyBed installs the policy of each mode, for a ServiceAccount of that name, and grants
// all rights to all users.
func policyBed(t *testing.T) *bed {
	b := newBed(t, helm4)
	own, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	harness.Must(t, b.cluster.InstallCRDs(t.Context(), own...))
	for _, mode := range []string{"crd", "multi-pool", "kubernetes"} {
		args := []string{"--set", "fullnameOverride=" + mode + ",mode=" + mode, "--set", "admissionPolicies.blocks.groups={breakers}"}
		if mode == "crd" {
			args = append(args, "--set", "nodes.shortageTaint=x.y/short")
		} else {
			args = append(args, "--set", "admissionPolicies.blocks.enabled=false")
		}
		for _, o := range render(t, args...) {
			if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") {
				b.Create(o)
			}
		}
	}
	// RBAC allows everything, so that only the policies refuse.
	b.Create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "all"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:authenticated"}},
	})
	return b
}

func (b *bed) as(user string, groups ...string) client.Client {
	b.Helper()
	config := rest.CopyConfig(b.cluster.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	c, err := client.New(config, client.Options{Scheme: b.Client.Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// objectsOfAttempts returns the objects that the attempts write.
func (b *bed) objectsOfAttempts() []client.Object {
	b.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{"kept": "yes"}}}
	carrier := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	block := &v1alpha1.PodIPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: ofBlock, Finalizers: []string{v1alpha1.Finalizer, "foregroundDeletion"}},
		Spec:       v1alpha1.PodIPBlockSpec{CIDR: "10.20.0.0/28", PoolName: "p", NodeName: "n1"},
	}
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
		editor: b.as(editor), collects: b.as(collects, "system:serviceaccounts:kube-system"), breaks: b.as(breaks, "breakers"),
	}
	for _, mode := range []string{"crd", "multi-pool", "kubernetes"} {
		clients[mode] = b.as(cilium(mode), "system:serviceaccounts")
	}
	objects := b.objectsOfAttempts()
	b.inForce(clients, objects)
	for group, attempts := range map[string]map[string]attempt{"operator": operatorAttempts(), "block": blockAttempts()} {
		for name, test := range attempts {
			t.Run(group+"/"+name, func(t *testing.T) {
				err := test.try(t.Context(), clients[test.who], objects)
				switch {
				case test.want == "" && err != nil:
					t.Errorf("refused: %v", err)
				case test.want != "" && (err == nil || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.want)):
					t.Errorf("got %v, want a refusal that says %q", err, test.want)
				}
			})
		}
	}
}

// try makes a dry run: the API server applies its policies to it, too.
func (a *attempt) try(ctx context.Context, c client.Client, objects []client.Object) error {
	c = client.NewDryRunClient(c)
	if a.create != nil {
		return c.Create(ctx, a.create)
	}
	i := slices.IndexFunc(objects, func(o client.Object) bool { return fmt.Sprintf("%T", o) == fmt.Sprintf("%T", a.kind) })
	return write(ctx, c, objects[i].DeepCopyObject().(client.Object), a.status, a.patch)
}

// inForce waits until the API server applies the policies.
func (b *bed) inForce(clients map[string]client.Client, objects []client.Object) {
	b.Helper()
	for _, a := range []attempt{operatorAttempts()["a label"], operatorAttempts()["another annotation"], operatorAttempts()["labels of a CiliumNode"],
		operatorAttempts()["what an agent requests"], blockAttempts()["the status, by an editor"]} {
		b.Eventually("a policy is in force", func() error {
			if err := a.try(b.Context(), clients[a.who], objects); !apierrors.IsForbidden(err) {
				return fmt.Errorf("%s got %v", a.who, err)
			}
			return nil
		})
	}
}

// The writes of editors, with kubectl and with the plugin, need no exception.
func TestEditorsUnderPolicies(t *testing.T) {
	b := policyBed(t)
	c := b.as(editor)
	b.inForce(map[string]client.Client{
		editor: c, collects: b.as(collects), "crd": b.as(cilium("crd")), "multi-pool": b.as(cilium("multi-pool")), "kubernetes": b.as(cilium("kubernetes")),
	}, b.objectsOfAttempts())
	block := &v1alpha1.PodIPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: "10.20.1.0-28", Finalizers: []string{v1alpha1.Finalizer}, Labels: map[string]string{v1alpha1.AdoptedLabel: "cluster-pool"}},
		Spec:       v1alpha1.PodIPBlockSpec{CIDR: "10.20.1.0/28", PoolName: "p", NodeName: "n1"},
	}
	steps := []struct {
		what string
		do   func() error
	}{
		{"adopting or pinning a block", func() error { return c.Create(t.Context(), block) }},
		{"finishing a move", func() error {
			return write(t.Context(), c, block, false, `{"metadata":{"labels":{"`+v1alpha1.AdoptedLabel+`":null}}}`)
		}},
		{"draining a block", func() error { return c.Delete(t.Context(), block, client.Preconditions{UID: &block.UID}) }},
		{"a label of a block that drains", func() error { return write(t.Context(), c, block, false, `{"metadata":{"labels":{"a":"b"}}}`) }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Errorf("%s: %v", s.what, err)
		}
	}
	b.Read(block, "", block.Name)
	if block.DeletionTimestamp == nil || !slices.Contains(block.Finalizers, v1alpha1.Finalizer) {
		t.Errorf("the block is not draining: %+v", block.ObjectMeta)
	}
}

// The example policy refuses tenants' pods that name their node, and no others.
func TestPodsDoNotChooseTheirNode(t *testing.T) {
	b := policyBed(t)
	for _, o := range readObjects(t, examples+"/admission-nodename.yaml") {
		b.Create(o)
	}
	pod := func(who client.Client, node string) error {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "p-"}}
		p.Spec = corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}}
		return client.NewDryRunClient(who).Create(t.Context(), p)
	}
	tenant := b.as("tenant")
	b.Eventually("a pod that names its node is refused", func() error {
		if err := pod(tenant, "n1"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "leave it to the scheduler") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	if err := pod(tenant, ""); err != nil {
		t.Errorf("a pod for the scheduler: %v", err)
	}
	if err := pod(b.as("system:serviceaccount:kube-system:x", "system:serviceaccounts:kube-system"), "n1"); err != nil {
		t.Errorf("a pod of a controller: %v", err)
	}
}
