package route

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

const (
	cidr = "10.0.0.0/30"
	name = "cilium-pool-t-n"
)

func template() *unstructured.Unstructured {
	obj := frrconfig.Empty("frr", "t")
	obj.Object["spec"] = map[string]any{
		"nodeSelector": map[string]any{"matchLabels": map[string]any{frrconfig.TemplateLabel: ""}},
		"bgp": map[string]any{"routers": []any{map[string]any{"neighbors": []any{map[string]any{
			"address": "192.0.2.1", "toAdvertise": map[string]any{"allowed": map[string]any{"mode": "all"}},
		}}}}},
	}
	return obj
}

func node(hostname string) *corev1.Node {
	n := fixtures.Node()
	n.Labels = map[string]string{corev1.LabelHostname: hostname}
	return n
}

// routes returns the FRRConfigurations that a watch would have delivered.
func routes(b *fakeapi.Cluster) *state.FRRConfigurations {
	b.T.Helper()
	out, list, nodes := state.NewFRRConfigurations(), &unstructured.UnstructuredList{}, &corev1.NodeList{}
	list.SetGroupVersionKind(frrconfig.Kind)
	for _, l := range []client.ObjectList{list, nodes} {
		if err := b.API.List(b.T.Context(), l); err != nil {
			b.T.Fatal(err)
		}
	}
	out.SetKnown()
	for i := range list.Items {
		out.Set(fakeapi.Shared(b, frrconfig.Read(&list.Items[i])))
	}
	for i := range nodes.Items {
		out.SetNode(nodes.Items[i].Name, &nodes.Items[i])
	}
	return out
}

func reconciler(b *fakeapi.Cluster) *Reconciler {
	return &Reconciler{
		Cache: b.Cached(), Live: b.API, Client: b.API, Ledger: b.Ledger, Routes: routes(b), Events: b.Events, Counters: b.Shared, Clock: b.Clock, Namespace: "frr",
	}
}

// settle reconciles the node until it writes no more, and returns the writes.
func settle(b *fakeapi.Cluster, change func(*Reconciler)) []string {
	b.T.Helper()
	var writes []string
	for range 3 {
		b.Calls = nil
		r := reconciler(b)
		change(r)
		if _, err := r.Reconcile(b.T.Context(), fakeapi.RequestOf("n")); err != nil {
			b.T.Fatal(err)
		}
		for _, call := range b.Calls {
			writes = append(writes, strings.TrimSuffix(call, " Unstructured"))
		}
	}
	return writes
}

func announced(b *fakeapi.Cluster) []string {
	var out []string
	for _, v := range routes(b).OfNode("n") {
		for _, p := range v.Prefixes {
			out = append(out, p.String())
		}
	}
	return out
}

func foreign() *unstructured.Unstructured {
	obj := template()
	obj.SetName(name)
	obj.Object["spec"] = map[string]any{}
	return obj
}

func TestKeepsFRRConfigurations(t *testing.T) {
	other := node("n")
	other.Name = "m"
	renamed := node("m")
	renamed.Name = "m"
	wants, _ := frrconfig.For(other, []*frrconfig.View{frrconfig.Read(template())}, fixtures.Prefixes("10.0.0.4/30"), "")
	ofOther := wants[0].New("frr")
	tests := map[string]struct {
		block  ipalloc.Phase
		cn     *ciliumv2.CiliumNode
		node   *corev1.Node
		before bool // it was announced before
		more   []client.Object
		change func(*Reconciler)
		writes []string
		event  string // a part of it
		left   []string
	}{
		"claimed":                       {node: node("n"), writes: []string{"create"}, left: []string{cidr}},
		"as it should be":               {node: node("n"), before: true, left: []string{cidr}},
		"drains":                        {block: ipalloc.Draining, node: node("n"), before: true, left: []string{cidr}},
		"cools down":                    {block: ipalloc.CoolingDown, node: node("n"), before: true, writes: []string{"delete"}},
		"cools down, and is still used": {block: ipalloc.CoolingDown, cn: fixtures.CiliumNode("n", "", cidr), node: node("n"), before: true, left: []string{cidr}},
		"its Node is gone":              {before: true, writes: []string{"delete"}},
		"another hostname":              {node: node("other"), before: true, writes: []string{"patch"}, left: []string{cidr}},
		"no hostname":                   {node: node(""), event: "kubernetes.io/hostname"},
		"the hostname of another":       {node: node("n"), more: []client.Object{other}, writes: []string{"create"}, left: []string{cidr}},
		"another takes its hostname":    {node: node("n"), before: true, more: []client.Object{other}, left: []string{cidr}},
		"another is announced by it":    {node: node("n"), more: []client.Object{other, ofOther}, event: "Node m has, too"},
		"both are announced by it":      {node: node("n"), before: true, more: []client.Object{other, ofOther}, writes: []string{"delete"}, event: "Node m has, too"},
		"another was, and is renamed":   {node: node("n"), more: []client.Object{renamed, ofOther}, writes: []string{"create"}, left: []string{cidr}},
		"the name is taken":             {node: node("n"), more: []client.Object{foreign()}, event: "is not the operator's"},
		"frr-k8s is missing":            {node: node("n"), change: func(r *Reconciler) { r.Routes = state.NewFRRConfigurations() }, event: "install frr-k8s"},
		"off":                           {node: node("n"), change: func(r *Reconciler) { r.ReadOnly = true }},
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			objects := append([]client.Object{fixtures.BlockObject(cidr, test.block), template()}, test.more...)
			if test.node != nil {
				objects = append(objects, test.node)
			}
			if test.cn != nil {
				objects = append(objects, test.cn)
			}
			b := fakeapi.New(t, ciliumnode.CRD, objects...)
			if test.before {
				wants, _ := frrconfig.For(node("n"), routes(b).Templates(), fixtures.Prefixes(cidr), "")
				if err := b.API.Create(t.Context(), wants[0].New("frr")); err != nil {
					t.Fatal(err)
				}
			}
			if test.change == nil {
				test.change = func(*Reconciler) {}
			}
			if diff := cmp.Diff(test.writes, settle(b, test.change), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.left, announced(b), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("announced (-want +got):\n%s", diff)
			}
			sent := b.EventsOf("BlocksNotAnnounced")
			if len(sent) != min(1, len(test.event)) || len(sent) > 0 && !strings.Contains(sent[0], test.event) {
				t.Errorf("events %q, want %q", sent, test.event)
			}
		})
	}
}

// Where the kind or its namespace is gone, a create is tried once, and the queue's backoff applies.
func TestKindIsGone(t *testing.T) {
	b := fakeapi.New(t, ciliumnode.CRD, fixtures.BlockObject(cidr, ipalloc.InService), template(), node("n"))
	b.Refuse = map[string]error{"create Unstructured": apierrors.NewNotFound(schema.GroupResource{}, "frr")}
	if _, err := reconciler(b).Reconcile(t.Context(), fakeapi.RequestOf("n")); err == nil || len(b.Calls) != 1 {
		t.Errorf("%v, calls %v", err, b.Calls)
	}
}

// An object that the webhook of frr-k8s refuses stops no other one of its node.
func TestRefusedObjectStopsNoOther(t *testing.T) {
	first := template()
	first.SetName("first")
	b := fakeapi.New(t, ciliumnode.CRD, fixtures.BlockObject(cidr, ipalloc.InService), first, template(), node("n"))
	refused := apierrors.NewForbidden(schema.GroupResource{}, "first", errors.New("denied the request"))
	b.Refuse = map[string]error{"create cilium-pool-first-n": refused}
	if _, err := reconciler(b).Reconcile(t.Context(), fakeapi.RequestOf("n")); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	if got := announced(b); !slices.Equal(got, []string{cidr}) {
		t.Errorf("announced is %v", got)
	}
	r := reconciler(b)
	for range 2 {
		b.Calls = nil
		if r.Announce(t.Context(), "n"); len(b.Calls) == 0 { // nor the next addresses, of whichever node
			t.Error("not tried")
		}
	}
}

// A write that loses against another leader, or whose object the watch has not shown, is made on the
// object's latest version.
func TestAnnounceDespiteALaggingWatch(t *testing.T) {
	b := fakeapi.New(t, ciliumnode.CRD, fixtures.BlockObject(cidr, ipalloc.InService), template(), node("n"))
	unseen := routes(b)
	settle(b, func(*Reconciler) {})
	b.Ledger.Upsert(fixtures.Block("10.0.0.4/30", "p", "n", 2))
	r := reconciler(b)
	r.Routes = unseen
	r.Announce(t.Context(), "n")
	if got := announced(b); !slices.Equal(got, []string{cidr, "10.0.0.4/30"}) {
		t.Errorf("announced is %v", got)
	}
	b.Ledger.Upsert(fixtures.Block("10.0.0.8/30", "p", "n", 3))
	r = reconciler(b)
	r.Announce(t.Context(), "n")
	b.Calls = nil
	if r.Announce(t.Context(), "n"); len(b.Calls) > 0 {
		t.Errorf("announced again: %v", b.Calls)
	}
}

// Of the queue and a node's reconcile, which meet in a burst, one writes the routes. Addresses do not wait
// for a write that hangs.
func TestOneWriterOfANode(t *testing.T) {
	for what, while := range map[string]func(announce func()){
		"it writes for both": func(announce func()) { go announce(); synctest.Wait() },
		"it hangs":           func(announce func()) { announce() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fakeapi.New(t, ciliumnode.CRD, fixtures.BlockObject(cidr, ipalloc.InService), template(), node("n"))
				settle(b, func(*Reconciler) {})
				b.Ledger.Upsert(fixtures.Block("10.0.0.4/30", "p", "n", 2))
				r := reconciler(b)
				b.Calls, b.Before = nil, func(string) {
					b.Before = func(string) {}
					while(func() { r.Announce(t.Context(), "n") })
				}
				if _, err := r.Reconcile(t.Context(), fakeapi.RequestOf("n")); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if len(b.Calls) != 1 || len(announced(b)) != 2 {
					t.Errorf("writes %v; announced is %v", b.Calls, announced(b))
				}
			})
		})
	}
}

// While writes fail, addresses wait for one of them from time to time.
func TestAddressesDoNotWaitForLong(t *testing.T) {
	b := fakeapi.New(t, ciliumnode.CRD, fixtures.BlockObject(cidr, ipalloc.InService), template(), node("n"))
	b.Refuse = map[string]error{"create Unstructured": errors.New("no endpoints available for the webhook")}
	r := reconciler(b)
	tries := func() int {
		b.Calls = nil
		for range 5 {
			r.Announce(t.Context(), "n")
		}
		return len(b.Calls)
	}
	for range 2 {
		if n := tries(); n != 1 {
			t.Errorf("%d tries, want 1", n)
		}
		b.Clock.SetTime(b.Clock.Now().Add(announceAgain + time.Second))
	}
	b.Refuse = nil
	if n := tries(); n != 5 { // the watch does not show it
		t.Errorf("%d tries once it is possible again, want 5", n)
	}
}
