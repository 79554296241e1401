package informer

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// podBed returns a feed that a reflector of pods fills, and its queue.
func podBed() (feed *Feed, queued map[string]bool) {
	feed, queued = newBed(), map[string]bool{}
	feed.queues[NodeQueue] = listening{add: func(name string) { queued[name] = true }}
	return feed, queued
}

func names(pods *state.Pods, node string) []string {
	var out []string
	for _, p := range pods.On(node) {
		out = append(out, fmt.Sprint(p.Name, p.IPs))
	}
	return out
}

// After a broken watch, a list lacks objects deleted in the meantime, and has a recreated object
// under another UID.
func TestReplaceForgetsWhatHasGone(t *testing.T) {
	feed, queued := podBed()
	s := feed.podStore()
	if toolscache.IsDone(s.HasSyncedChecker()) {
		t.Error("synced before the first list")
	}
	first := []any{fixtures.Pod("a", "1", "n", "10.0.0.1"), fixtures.Pod("b", "2", "n"), fixtures.Pod("c", "3", "m"), fixtures.Pod("d", "4", "o")}
	if err := s.Replace(first, "7"); err != nil {
		t.Fatal(err)
	}
	if !toolscache.IsDone(s.HasSyncedChecker()) {
		t.Error("not synced after the first list")
	}
	clear(queued)
	again := []any{fixtures.Pod("a", "1", "n", "10.0.0.1"), fixtures.Pod("c", "5", "m", "10.0.0.9"), fixtures.Pod("d", "4", "o")}
	if err := s.Replace(again, "9"); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{"n": names(feed.Pods, "n"), "m": names(feed.Pods, "m"), "o": names(feed.Pods, "o")}
	want := map[string][]string{"n": {"default/a[10.0.0.1]"}, "m": {"default/c[10.0.0.9]"}, "o": {"default/d[]"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"m", "n"}, slices.Sorted(maps.Keys(queued))); diff != "" {
		t.Errorf("queued (-want +got):\n%s", diff)
	}
}

func TestReplaceForgetsAgents(t *testing.T) {
	feed, _ := podBed()
	s := feed.agentStore()
	for _, list := range [][]any{{fixtures.AgentPod("1", "c", true), fixtures.AgentPod("2", "d", true)}, {fixtures.AgentPod("2", "d", true)}} {
		if err := s.Replace(list, ""); err != nil {
			t.Fatal(err)
		}
	}
	if settled, _ := feed.Agents.Settled("n", fixtures.Noon()); !settled {
		t.Error("an agent that has gone still counts")
	}
}

// A CiliumNode that was deleted and recreated while the watch was down exists; a CiliumNode that
// was only deleted does not, and is remembered.
func TestReplaceTellsCiliumNodesApart(t *testing.T) {
	feed, queued := podBed()
	s := feed.ciliumNodeStore()
	ciliumNode := func(name string, uid types.UID, version string) any {
		cn := fixtures.CiliumNode(name, version)
		cn.UID = uid
		return cn
	}
	for _, list := range [][]any{{ciliumNode("n", "1", "5"), ciliumNode("m", "2", "6")}, {ciliumNode("n", "3", "8")}} {
		clear(queued)
		if err := s.Replace(list, "9"); err != nil {
			t.Fatal(err)
		}
	}
	if got := feed.Ledger.CiliumNode("n"); got == nil || got.UID != "3" || feed.Ledger.LastCiliumNode("n") != nil {
		t.Errorf("CiliumNode n: %+v, deleted %+v", got, feed.Ledger.LastCiliumNode("n"))
	}
	if got := feed.Ledger.LastCiliumNode("m"); got == nil || got.UID != "2" || feed.Ledger.CiliumNode("m") != nil {
		t.Errorf("CiliumNode m: deleted %+v, there %+v", got, feed.Ledger.CiliumNode("m"))
	}
	if diff := cmp.Diff([]string{"m", "n"}, slices.Sorted(maps.Keys(queued))); diff != "" {
		t.Errorf("queued (-want +got):\n%s", diff)
	}
}

// A CiliumNode with a version known from the response to a write is not read again, and its node is
// queued all the same.
func TestCiliumNodeKnownFromAWrite(t *testing.T) {
	feed, queued := podBed()
	written := feed.Mode.View(fixtures.CiliumNode("n", "5", "10.0.0.0/30"))
	feed.Ledger.UpsertCiliumNode(written)
	s := feed.ciliumNodeStore().(*records[client.Object, *ciliumnode.View])
	if got := s.read(fixtures.CiliumNode("n", "5", "10.0.0.0/30")); got != written {
		t.Error("it is read again")
	}
	if got := s.read(fixtures.CiliumNode("n", "6")); got == written || len(got.PodCIDRs) > 0 {
		t.Errorf("a later version is taken for %+v", got)
	}
	if err := s.Add(fixtures.CiliumNode("n", "5", "10.0.0.0/30")); err != nil || len(queued) != 1 {
		t.Errorf("%v; queued %v", err, queued)
	}
}

// A list older than the response to a write deletes no CiliumNode: the addresses of the node stay
// excluded.
func TestReplaceWithAnOlderList(t *testing.T) {
	feed, _ := podBed()
	cn := fixtures.CiliumNode("n", "5")
	cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "InternalIP", IP: "10.0.0.1"}}
	s := feed.ciliumNodeStore()
	if err := s.Add(cn); err != nil {
		t.Fatal(err)
	}
	if err := s.Replace(nil, "4"); err != nil {
		t.Fatal(err)
	}
	if feed.Ledger.CiliumNode("n") == nil || len(feed.Ledger.Exclusions.Excluded(fixtures.Prefix("10.0.0.0/30"))) != 1 {
		t.Error("a list of the past has deleted the CiliumNode")
	}
}

func TestStoreRefusesOtherKinds(t *testing.T) {
	feed, _ := podBed()
	s := feed.podStore()
	for _, err := range []error{s.Add(&corev1.Node{}), s.Update("a"), s.Delete(nil), s.Replace([]any{&corev1.Node{}}, "")} {
		if err == nil {
			t.Error("no error for what is no pod")
		}
	}
	if toolscache.IsDone(s.HasSyncedChecker()) {
		t.Error("synced by a list that could not be read")
	}
}
