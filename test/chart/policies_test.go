package chart

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
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
	warns  string
}

const (
	editor   = "editor"       // has all rights
	blocks   = "block-editor" // has only the chart's role of this name
	collects = "system:serviceaccount:kube-system:generic-garbage-collector"
	breaks   = "root" // in a group listed in blocks.groups
	tenant   = "tenant"
	// The node agents of n1 and n2.
	agent  = "delegated-plugin-node-agent"
	agent2 = "delegated-plugin-node-agent of n2"
)

// ciliumNode returns a new CiliumNode of the Node n2, with a change.
func ciliumNode(change func(*ciliumv2.CiliumNode)) *ciliumv2.CiliumNode {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{
		Name: "n2", Labels: map[string]string{"a": "b"}, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n2", UID: "u"}},
	}}
	change(cn)
	return cn
}

// hooks returns the webhooks of a MutatingWebhookConfiguration, as a merge patch.
func hooks(url, ca, more string) string {
	return fmt.Sprintf(`{"webhooks":[{"name":"requests.example.org","clientConfig":{"url":%q,"caBundle":%q},"sideEffects":"None","admissionReviewVersions":["v1"]%s}]}`, url, ca, more)
}

func operatorAttempts() map[string]attempt {
	node, carrier, webhook := &corev1.Node{}, &ciliumv2.CiliumNode{}, &admissionv1.MutatingWebhookConfiguration{}
	restored := ciliumNode(func(cn *ciliumv2.CiliumNode) {
		cn.Annotations = map[string]string{"network.cilium.io/wg-pub-key": "its own"}
		cn.Spec = ciliumv2.NodeSpec{
			InstanceID: "i", BootID: "b", Addresses: []ciliumv2.NodeAddress{{Type: "InternalIP", IP: "192.0.2.9"}}, Encryption: ciliumv2.EncryptionSpec{Key: 3},
			HealthAddressing: ciliumv2.HealthAddressingSpec{IPv4: "10.20.0.1"}, IngressAddressing: ciliumv2.AddressPair{IPV4: "10.20.0.2"},
			IPAM: ipamtypes.IPAMSpec{Pool: ipamtypes.AllocationMap{"10.20.0.1": {}}, MaxAllocate: 9},
		}
	})
	requesting := ciliumNode(func(cn *ciliumv2.CiliumNode) {
		cn.Spec.IPAM.Pools.Requested = []ipamtypes.IPAMPoolRequest{{Pool: "default"}}
	})
	return map[string]attempt{
		"the taint":                 {who: "crd", kind: node, patch: `{"spec":{"taints":[{"key":"other","effect":"NoExecute"},{"key":"x.y/short","effect":"NoSchedule"}]}}`},
		"no taint any more":         {who: "crd", kind: node, patch: `{"spec":{"taints":[{"key":"other","effect":"NoExecute"}]}}`},
		"the taint, which evicts":   {who: "crd", kind: node, patch: `{"spec":{"taints":[{"key":"other","effect":"NoExecute"},{"key":"x.y/short","effect":"NoExecute"}]}}`, want: "only the taint x.y/short"},
		"another taint":             {who: "crd", kind: node, patch: `{"spec":{"taints":[{"key":"other","effect":"NoExecute"},{"key":"mine","effect":"NoSchedule"}]}}`, want: "only the taint x.y/short"},
		"another taint away":        {who: "crd", kind: node, patch: `{"spec":{"taints":null}}`, want: "only the taint x.y/short"},
		"a taint without the value": {who: "kubernetes", kind: node, patch: `{"spec":{"taints":[{"key":"other","effect":"NoExecute"},{"key":"x.y/short","effect":"NoSchedule"}]}}`, want: "nodes.shortageTaint is empty"},
		"cordon":                    {who: "crd", kind: node, patch: `{"spec":{"unschedulable":true}}`, want: "spec of a Node"},
		"a label":                   {who: "crd", kind: node, patch: `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, want: "metadata of a Node"},
		"a label that others read":  {who: "crd", kind: node, patch: `{"metadata":{"labels":{"kept":"no"}}}`, want: "Exempt the operator's ServiceAccount from that one"},
		"a label away":              {who: "crd", kind: node, patch: `{"metadata":{"labels":{"kept":null}}}`, want: "metadata of a Node"},
		"an annotation of ours":     {who: "crd", kind: node, patch: `{"metadata":{"annotations":{"cilium-pool.io/paused":"true"}}}`, want: "metadata of a Node"},
		"an annotation":             {who: "crd", kind: node, patch: `{"metadata":{"annotations":{"network.cilium.io/ipv4-pod-cidr":"10.20.0.0/28"}}}`, want: "metadata of a Node"},
		"the podCIDR's annotation":  {who: "kubernetes", kind: node, patch: `{"metadata":{"annotations":{"network.cilium.io/ipv4-pod-cidr":"10.20.0.0/28"}}}`},
		"the mark of a move":        {who: "kubernetes", kind: node, patch: `{"metadata":{"annotations":{"cilium-pool.io/moved":"1"}}}`},
		"another annotation":        {who: "kubernetes", kind: node, patch: `{"metadata":{"annotations":{"kept":"no"}}}`, want: "but the annotations network.cilium.io/ipv4-pod-cidr"},
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
		"a label, by the status":    {who: "crd", kind: node, status: true, patch: `{"metadata":{"labels":{"kept":"no"}}}`, want: "metadata of a Node"},

		"pool and podCIDRs":            {who: "crd", kind: carrier, patch: `{"spec":{"ipam":{"pool":{"10.20.0.2":{}},"podCIDRs":["10.20.0.0/28"]}}}`},
		"allocated CIDRs, in crd mode": {who: "crd", kind: carrier, patch: `{"spec":{"ipam":{"pools":{"allocated":[]}}}}`, want: "only ipam.pool and ipam.podCIDRs"},
		"a person's limit":             {who: "crd", kind: carrier, patch: `{"spec":{"ipam":{"max-allocate":1}}}`, want: "only ipam.pool and ipam.podCIDRs"},
		"addresses of the agent":       {who: "crd", kind: carrier, patch: `{"spec":{"addresses":[{"type":"InternalIP","ip":"192.0.2.9"}]}}`, want: "only ipam.pool and ipam.podCIDRs"},
		"an encryption key":            {who: "crd", kind: carrier, patch: `{"spec":{"encryption":{"key":3}}}`, want: "only ipam.pool and ipam.podCIDRs"},
		"labels of a CiliumNode":       {who: "crd", kind: carrier, patch: `{"metadata":{"labels":{"kept":"no"}}}`, want: "metadata of a CiliumNode"},
		"annotations of a CiliumNode":  {who: "crd", kind: carrier, patch: `{"metadata":{"annotations":{"network.cilium.io/wg-pub-key":"mine"}}}`, want: "metadata of a CiliumNode"},
		"marks and withdrawn answers":  {who: "crd", kind: carrier, status: true, patch: `{"status":{"ipam":{"release-ips":{"10.20.0.1":"marked-for-release","10.20.0.5":null}}}}`},
		"an agent's address retired":   {who: "crd", kind: carrier, status: true, patch: `{"status":{"ipam":{"release-ips":{"10.20.0.1":"released"}}}}`},
		"one retired outside the pool": {who: "crd", kind: carrier, status: true, patch: `{"status":{"ipam":{"release-ips":{"10.20.0.6":"released"}}}}`, want: "to retire addresses of spec.ipam.pool"},
		"an agent's answer":            {who: "crd", kind: carrier, status: true, patch: `{"status":{"ipam":{"release-ips":{"10.20.0.4":"ready-for-release"}}}}`, want: "only ipam.release-ips"},
		"an agent's report":            {who: "crd", kind: carrier, status: true, patch: `{"status":{"ipam":{"used":null}}}`, want: "only ipam.release-ips"},
		"a Node's CiliumNode":          {who: "crd", create: ciliumNode(func(*ciliumv2.CiliumNode) {})},
		"a CiliumNode of no Node":      {who: "crd", create: ciliumNode(func(cn *ciliumv2.CiliumNode) { cn.OwnerReferences = nil }), want: "only for the Node of its name"},
		"a CiliumNode of two owners": {who: "crd", create: ciliumNode(func(cn *ciliumv2.CiliumNode) {
			cn.OwnerReferences = append(cn.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "n2", UID: "s"})
		}), want: "its one owner"},
		"a CiliumNode that stays":          {who: "crd", create: ciliumNode(func(cn *ciliumv2.CiliumNode) { cn.Finalizers = []string{"a/b"} }), want: "without finalizers"},
		"a CiliumNode as an agent left it": {who: "crd", create: restored},
		"a CiliumNode of a cloud":          {who: "crd", create: ciliumNode(func(cn *ciliumv2.CiliumNode) { cn.Spec.ENI.SubnetIDs = []string{"mine"} }), want: "only with the fields of spec that it restores"},
		"restored with requests":           {who: "multi-pool", create: requesting, want: "ipam without pools.requested"},

		"allocated CIDRs":            {who: "multi-pool", kind: carrier, patch: `{"spec":{"ipam":{"pools":{"allocated":[{"pool":"default","cidrs":["10.20.0.0/28"]}]}}}}`},
		"what an agent requests":     {who: "multi-pool", kind: carrier, patch: `{"spec":{"ipam":{"pools":{"requested":[]}}}}`, want: "only ipam.pools.allocated"},
		"pool, in multi-pool mode":   {who: "multi-pool", kind: carrier, patch: `{"spec":{"ipam":{"pool":{"10.20.0.3":{}}}}}`, want: "only ipam.pools.allocated"},
		"retired, in that mode":      {who: "multi-pool", kind: carrier, status: true, patch: `{"status":{"ipam":{"release-ips":{"10.20.0.1":"released"}}}}`, want: "only ipam.release-ips"},
		"the webhook's certificate":  {who: "crd", kind: webhook, patch: hooks("https://a.example.org", "bmV3", "")},
		"the webhook's address":      {who: "crd", kind: webhook, patch: hooks("https://b.example.org", "b2xk", ""), want: "only clientConfig.caBundle"},
		"the webhook's objects":      {who: "crd", kind: webhook, patch: hooks("https://a.example.org", "b2xk", `,"rules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"operations":["*"]}]`), want: "only clientConfig.caBundle"},
		"another webhook":            {who: "crd", kind: webhook, patch: `{"webhooks":null}`, want: "only clientConfig.caBundle"},
		"a node agent's list":        {who: agent, kind: carrier, patch: `{"spec":{"ipam":{"pools":{"allocated":[],"requested":[]}}}}`},
		"a node agent's report":      {who: agent, kind: carrier, status: true, patch: `{"status":{"ipam":{"used":null,"release-ips":null}}}`},
		"a CIDR, by a node agent":    {who: agent, kind: carrier, patch: `{"spec":{"ipam":{"pools":{"allocated":[{"pool":"default","cidrs":["10.20.9.0/28"]}]}}}}`, want: "and add none"},
		"the list of another node":   {who: agent2, kind: carrier, patch: `{"spec":{"ipam":{"pools":{"allocated":[]}}}}`, want: "only the CiliumNode of its own node"},
		"pool, by a node agent":      {who: agent, kind: carrier, patch: `{"spec":{"ipam":{"pool":{"10.20.0.3":{}}}}}`, want: "only ipam.pools"},
		"addresses, by a node agent": {who: agent, kind: carrier, patch: `{"spec":{"addresses":[{"type":"InternalIP","ip":"192.0.2.9"}]}}`, want: "only ipam.pools"},
		"a label, by a node agent":   {who: agent, kind: carrier, patch: `{"metadata":{"labels":{"kept":"no"}}}`, want: "only ipam.pools"},
		"a CiliumNode, by its agent": {who: agent2, create: ciliumNode(func(*ciliumv2.CiliumNode) {}), want: "only ipam.pools"},
		"a status, by a node agent":  {who: agent, kind: carrier, status: true, patch: `{"status":{"ipam":{"operator-status":{"error":"x"}}}}`, want: "only ipam.used"},
		"marks, in multi-pool mode":  {who: "multi-pool", kind: carrier, status: true, patch: `{"status":{"ipam":{"release-ips":{"192.0.2.1":"marked-for-release"}}}}`},
	}
}

// blockAttempts are those of the policies of blocks. docs/install.md has the refusal to delete a pool.
func blockAttempts(refusal string) map[string]attempt {
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
		"deleting a pool in use":          {who: breaks, delete: poolNamed("used"), want: strings.ReplaceAll(refusal, "beijing", "used")},
		"deleting a pool that drains":     {who: editor, delete: poolNamed("drains")},
		"deleting an unused pool":         {who: editor, delete: poolNamed("unused")},
		"deleting a pool, allowed":        {who: editor, delete: poolNamed("allowed")},
		"deleting a CRD":                  {who: breaks, delete: crdNamed("podipblocks.cilium-pool.io"), want: "no node would get a block any more, and all blocks would drain. To uninstall, see docs/operations.md. To delete it all the same, first: kubectl annotate crd podipblocks.cilium-pool.io cilium-pool.io/allow-delete=true"},
		"deleting a CRD, allowed":         {who: editor, delete: crdNamed("podippins.cilium-pool.io")},
		"deleting another CRD":            {who: editor, delete: crdNamed("ciliumnodes.cilium.io")},
		"a pool of private ranges":        {who: editor, create: poolOf("fine", "10.20.0.0/16", "100.64.0.0/10")},
		"a pool of a public range":        {who: editor, create: poolOf("wide", "10.20.0.0/16", "100.162.224.0/19"), warns: "100.162.224.0/19: neither private (RFC 1918, RFC 4193) nor shared address space (RFC 6598), so if it is not assigned to you, pods cannot reach its owner. If it is: kubectl annotate podippool wide cilium-pool.io/own-ranges=true"},
		"a pod that names addresses":      {who: breaks, create: podNaming("fd00:10::5, 10.20.0.5")},
		"a pod that names a word":         {who: breaks, create: podNaming("db"), want: "the annotation cilium-pool.io/address must be one address, or one of each family"},
		"a pod that names two":            {who: breaks, create: podNaming("10.20.0.5,10.20.0.6"), want: "the annotation cilium-pool.io/address must be one address, or one of each family"},
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

// podNaming returns a new pod with the addresses in its annotation.
func podNaming(addresses string) *corev1.Pod {
	pod := harness.BoundPod("", "db", nil)
	pod.Annotations = map[string]string{state.AddressAnnotation: addresses}
	return pod
}

// poolOf returns a new pool of IPv4 CIDRs.
func poolOf(name string, cidrs ...string) *v1alpha1.PodIPPool {
	pool := poolNamed(name)
	pool.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 28}
	for _, c := range cidrs {
		pool.Spec.IPv4.CIDRs = append(pool.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: c})
	}
	return pool
}

func crdNamed(name string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// deletable creates the objects that the attempts delete, but for the block of all.
func (b *bed) deletable() {
	b.Helper()
	allowed := map[string]string{v1alpha1.AllowDeleteAnnotation: "true"}
	block := newBlock("10.20.2.0/28")
	block.Annotations = allowed
	b.Create(block)
	b.Must(write(b.Context(), b.Client, crdNamed("podippins.cilium-pool.io"), false, `{"metadata":{"annotations":{"cilium-pool.io/allow-delete":"true"}}}`))
	for _, name := range []string{"used", "drains", "unused", "allowed"} {
		pool := poolOf(name, "10.20.0.0/24")
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
		"crd": "nodes.shortageTaint=x.y/short,scheduling.enabled=true,scheduling.admission=Webhook", "multi-pool": "admissionPolicies.blocks.enabled=false", "kubernetes": "admissionPolicies.blocks.enabled=false",
		"delegated-plugin": "admissionPolicies.blocks.enabled=false",
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

// warnings collects the API server's warnings.
type warnings struct {
	mu  sync.Mutex
	all string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all += text + "\n"
}

func (b *bed) clientAs(user string, groups ...string) client.Client {
	b.Helper()
	config := rest.CopyConfig(b.cluster.Config())
	config.WarningHandler = &b.warnings
	if user != blocks {
		groups = append(groups, "all")
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	if name, isAgent := strings.CutPrefix(user, agent); isAgent {
		config.Impersonate.UserName = "system:serviceaccount:kube-system:" + agent
		config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {cmp.Or(strings.TrimPrefix(name, " of "), "n1")}}
	}
	c, err := client.New(config, client.Options{Scheme: b.Client.Scheme()})
	b.Must(err)
	return c
}

// objectsOfAttempts returns the objects that the attempts write.
func (b *bed) objectsOfAttempts() []client.Object {
	b.Helper()
	kept := map[string]string{"kept": "yes"}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: kept, Labels: kept}}
	carrier := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: kept}}
	webhook := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "w"}}
	block := newBlock("10.20.0.0/28", v1alpha1.Finalizer, "foregroundDeletion")
	for _, o := range []client.Object{node, carrier, block, webhook} {
		b.Create(o)
	}
	set := func(o client.Object, status bool, patch string) {
		b.Helper()
		b.Must(write(b.Context(), b.Client, o, status, patch))
	}
	set(node, false, `{"spec":{"taints":[{"key":"other","effect":"NoExecute"}]}}`)
	set(node, true, `{"status":{"capacity":{"cpu":"4","pods":"110"},"allocatable":{"cpu":"4","pods":"110"},"conditions":[{"type":"Ready","status":"True"}]}}`)
	set(carrier, false, `{"spec":{"ipam":{"pool":{"10.20.0.1":{}},"pools":{"requested":[{"pool":"default","needed":{"ipv4-addrs":8}}]}}}}`)
	set(carrier, true, `{"status":{"ipam":{"used":{"10.20.0.1":{"owner":"router"}},"release-ips":{"10.20.0.4":"marked-for-release","10.20.0.5":"ready-for-release"}}}}`)
	set(webhook, false, hooks("https://a.example.org", "b2xk", ""))
	return []client.Object{node, carrier, block, webhook}
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

// trial is a cluster with the policies in force, and what is tried there.
type trial struct {
	*bed
	clients  map[string]client.Client
	objects  []client.Object
	attempts map[string]attempt
}

func newTrial(t *testing.T) *trial {
	b := policyBed(t)
	clients := map[string]client.Client{
		editor: b.clientAs(editor), blocks: b.clientAs(blocks), collects: b.clientAs(collects, "system:serviceaccounts:kube-system"), breaks: b.clientAs(breaks, "breakers"), tenant: b.clientAs(tenant),
		agent: b.clientAs(agent), agent2: b.clientAs(agent2),
	}
	for _, mode := range []string{"crd", "multi-pool", "kubernetes"} {
		clients[mode] = b.clientAs("system:serviceaccount:kube-system:"+mode, "system:serviceaccounts")
	}
	objects := b.objectsOfAttempts()
	b.deletable()
	attempts := operatorAttempts()
	maps.Copy(attempts, blockAttempts(strings.TrimSpace(blockBelow(t, "docs/install.md", "Remove a pool from Git", ""))))
	maps.Copy(attempts, podAttempts())
	for _, name := range []string{
		"a label", "another annotation", "labels of a CiliumNode", "what an agent requests", "the webhook's address", "the status, by an editor", "deleting a block",
		"deleting a pool in use", "deleting a CRD", "a pod of a tenant on a node", "the list of another node",
	} {
		b.Eventually("a policy is in force", func() error {
			a := attempts[name]
			if err := a.try(b.Context(), clients[a.who], objects); !apierrors.IsForbidden(err) {
				return fmt.Errorf("%s got %v", a.who, err)
			}
			return nil
		})
	}
	return &trial{b, clients, objects, attempts}
}

func (tr *trial) try(t *testing.T, name string) {
	t.Helper()
	test := tr.attempts[name]
	err := test.try(t.Context(), tr.clients[test.who], tr.objects)
	switch {
	case test.want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case test.want != "" && (err == nil || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.want)):
		t.Errorf("got %v, want a refusal that says %q", err, test.want)
	case !strings.Contains(tr.warnings.all, test.warns):
		t.Errorf("the warnings are %q, want %q", tr.warnings.all, test.warns)
	}
}

func (tr *trial) tryAll(t *testing.T) {
	t.Helper()
	for name := range tr.attempts {
		t.Run(name, func(t *testing.T) { tr.try(t, name) })
	}
}

// The policies allow the writes of the operator, the plugin, users with the editor roles and
// Kubernetes' controllers, and refuse all others with a reason.
func TestPolicies(t *testing.T) {
	tr := newTrial(t)
	tr.tryAll(t)
	if n := strings.Count(tr.warnings.all, "neither private"); n != 1 {
		t.Errorf("%d warnings of public ranges, want one: %s", n, tr.warnings.all)
	}
	tr.Must(write(tr.Context(), tr.Client, tr.objects[2], false, `{"metadata":{"annotations":{"cilium-pool.io/allow-delete":"true"}}}`))
	tr.Delete(tr.objects[2])
	t.Run("a label of a block that drains", func(t *testing.T) { tr.try(t, "a label of migrate") })
}

// Another's policy that adds a label and an annotation to every object changes none of that.
func TestPoliciesBesideAnotherMutation(t *testing.T) {
	tr := newTrial(t)
	for _, o := range objects(t, everyObjectLabelled) {
		tr.Create(o)
	}
	tr.Eventually("the mutation is in force", func() error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n9"}}
		tr.Must(client.NewDryRunClient(tr.Client).Create(tr.Context(), node))
		if node.Labels["costcentre"] == "" {
			return fmt.Errorf("labels are %v", node.Labels)
		}
		return nil
	})
	tr.tryAll(t)
}

const everyObjectLabelled = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: cost-centre}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: ["", cilium.io, cilium-pool.io, admissionregistration.k8s.io], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: ["*/*"]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >-
        Object{metadata: Object.metadata{labels: Object.metadata.labels{costcentre: "4711"}, annotations: Object.metadata.annotations{owner: "finance"}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: cost-centre}
spec: {policyName: cost-centre}
`

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
