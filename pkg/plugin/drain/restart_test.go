package drain

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// agents is a cluster of nodes, each with an agent that has run for an hour.
type agents struct {
	*clusterview.Cluster
	client  client.Client
	deleted []string
	out     strings.Builder
}

// newAgents creates nodes in the zones that follow the colon in their names.
func newAgents(t *testing.T, nodes ...string) *agents {
	t.Helper()
	a := &agents{Cluster: &clusterview.Cluster{Now: fixtures.Noon(), Objects: &clusterread.Objects{}, Nodes: map[string]*corev1.Node{}}}
	var pods []client.Object
	for _, n := range nodes {
		name, zone, _ := strings.Cut(n, ":")
		a.Nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
		pods = append(pods, a.runs(name, "old"))
	}
	a.client = fake.NewClientBuilder().WithObjects(pods...).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, obj client.Object, o ...client.DeleteOption) error {
			options := &client.DeleteOptions{}
			options.ApplyOptions(o)
			a.deleted = append(a.deleted, obj.GetName()+" "+string(*options.Preconditions.UID))
			return nil
		},
	}).Build()
	return a
}

// runs replaces the agent of a node by another that has run for an hour.
func (a *agents) runs(node, uid string) *corev1.Pod { return a.set(node, uid, true) }

// starts makes the agent of a node not Ready.
func (a *agents) starts(node, uid string) { a.set(node, uid, false) }

func (a *agents) set(node, uid string, ready bool) *corev1.Pod {
	pod := fixtures.AgentPod(node+"-"+uid, "c-"+uid, ready)
	pod.Name, pod.Spec.NodeName = "cilium-"+node, node
	a.Objects.Agents = slices.DeleteFunc(a.Objects.Agents, func(p corev1.Pod) bool { return p.Spec.NodeName == node })
	a.Objects.Agents = append(a.Objects.Agents, *pod)
	a.State.Agents = state.NewAgents(time.Minute)
	for i := range a.Objects.Agents {
		a.State.Agents.Set(state.ReadAgent(&a.Objects.Agents[i]), a.Now.Add(-time.Hour))
	}
	return pod
}

// step returns the agents that are restarted, and the nodes where users must act.
func (a *agents) step(t *testing.T, v *restarter, nodes ...string) (restarted, people []string) {
	t.Helper()
	var rows []list.BlockRow
	for _, n := range nodes {
		rows = append(rows, list.BlockRow{Node: n, NeedsAction: "restart the agent", NeedsRestart: true})
	}
	a.deleted = nil
	rows, err := v.step(t.Context(), a.Cluster, rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.NeedsAction != "" {
			people = append(people, r.Node)
		}
	}
	return a.deleted, people
}

func (a *agents) restarter(limit int) *restarter { return newRestarter(a.client, &a.out, limit) }

// One agent per zone restarts, as many as allowed, and the next batch once all agents run.
func TestRestartsOneOfAZone(t *testing.T) {
	a := newAgents(t, "a1:a", "a2:a", "b1:b", "c1:c")
	v := a.restarter(2)
	got, people := a.step(t, v, "a1", "a1", "a2", "b1", "c1") // a1 has a block of each family
	if diff := cmp.Diff([]string{"cilium-a1 a1-old", "cilium-b1 b1-old"}, got); diff != "" || len(people) > 0 {
		t.Errorf("first (-want +got):\n%s, people must act on %v", diff, people)
	}
	a.starts("a1", "new")
	a.runs("b1", "new")
	if got, _ := a.step(t, v, "a1", "a2", "c1"); len(got) > 0 {
		t.Errorf("restarted %v while a1 starts", got)
	}
	a.runs("a1", "new")
	if got, _ := a.step(t, v, "a2", "c1"); !slices.Equal(got, []string{"cilium-a2 a2-old", "cilium-c1 c1-old"}) {
		t.Errorf("restarted %v, want a2 and c1", got)
	}
	if !strings.Contains(a.out.String(), "the agent on a2 is restarted\n") {
		t.Error(a.out.String())
	}
}

// An agent that does not settle holds restarts up, and is named, unless its node is off and was so before.
func TestRestartsWaitForAgents(t *testing.T) {
	const waits = "  no agent is restarted until the agent runs steadily on b1\n"
	for name, test := range map[string]struct {
		kubelet   corev1.ConditionStatus
		restarted types.UID
		want      string
	}{
		"it starts":                  {corev1.ConditionTrue, "", waits},
		"its node is off":            {corev1.ConditionUnknown, "", "  the agent on a1 is restarted\n"},
		"its node is off since then": {corev1.ConditionUnknown, "b1-old", waits},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgents(t, "a1:a", "b1:b")
			a.starts("b1", "new")
			a.Nodes["b1"].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: test.kubelet}}
			v := a.restarter(1)
			if test.restarted != "" {
				v.restarted["b1"] = test.restarted
			}
			a.step(t, v, "a1")
			a.step(t, v, "a1")
			if diff := cmp.Diff(test.want, a.out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An agent that restarts while a block leaves another node would keep its route to it.
func TestRestartsOnceNothingLeaves(t *testing.T) {
	for name, test := range map[string]struct {
		other list.BlockRow
		want  bool
	}{
		"alone":                            {list.BlockRow{}, true},
		"it is in service":                 {list.BlockRow{Phase: "InService"}, true},
		"it waits for pods":                {list.BlockRow{Phase: "Draining", WaitsFor: "pods"}, false},
		"it waits for people":              {list.BlockRow{Phase: "Draining", NeedsAction: "drain the Node"}, true},
		"it cools down":                    {list.BlockRow{Phase: "CoolingDown", CIDR: fixtures.Prefix("10.0.0.16/28")}, true},
		"it cools down, and is routed":     {list.BlockRow{Phase: "CoolingDown", CIDR: fixtures.Prefix("10.0.0.0/28")}, false},
		"its agent has yet to report":      {list.BlockRow{Phase: "Draining", NeedsAction: "restart", NeedsRestart: true, Node: "b1"}, false},
		"its agent restarted in vain":      {list.BlockRow{Phase: "Draining", NeedsAction: "restart", NeedsRestart: true, Node: "c1"}, true},
		"its agent is yet to be restarted": {list.BlockRow{Phase: "Draining", NeedsAction: "restart", NeedsRestart: true, Node: "d1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgents(t, "a1:a", "b1:b", "c1:c", "d1:d")
			a.State.Ledger = readOf(t, fixtures.CiliumNode("n", "", "10.0.0.0/28")).State.Ledger
			a.runs("c1", "new")
			b1 := state.ReadAgent(a.runs("b1", "new"))
			a.State.Agents.Delete(b1.PodKey)
			a.State.Agents.Set(b1, a.Now.Add(-time.Minute-time.Second)) // just settled
			v := a.restarter(1)
			v.restarted["b1"], v.restarted["c1"] = "b1-old", "c1-old"
			rows := []list.BlockRow{{Node: "a1", Phase: "Draining", NeedsAction: "restart the agent", NeedsRestart: true}}
			if test.other.Phase != "" {
				if test.other.Node == "" {
					test.other.Node = "n"
				}
				rows = append(rows, test.other)
			}
			a.deleted = nil
			if _, err := v.step(t.Context(), a.Cluster, rows); err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(a.deleted, "cilium-a1 a1-old"); got != test.want {
				t.Errorf("a1 is restarted: %t, want %t", got, test.want)
			}
		})
	}
}

// An agent that restarts while it has other blocks to leave may take an address in them. The steps
// of users about those come first.
func TestRestartsOnceAllBlocksWaitForIt(t *testing.T) {
	for name, test := range map[string]struct {
		others []list.BlockRow // of a1
		want   string
		people string
	}{
		"its only block":             {nil, "cilium-a1 a1-old", ""},
		"another waits for it too":   {[]list.BlockRow{{Phase: "Draining", NeedsAction: "restart", NeedsRestart: true}}, "cilium-a1 a1-old", ""},
		"another cools down":         {[]list.BlockRow{{Phase: "CoolingDown"}}, "cilium-a1 a1-old", ""},
		"another has yet to begin":   {[]list.BlockRow{{Phase: "InService", WaitsFor: "its turn"}}, "cilium-b1 b1-old", ""},
		"another never begins":       {[]list.BlockRow{{Phase: "InService", NeedsAction: "correct the windows"}}, "cilium-b1 b1-old", "correct the windows"},
		"another keeps a pod":        {[]list.BlockRow{{Phase: "Draining", NeedsAction: "move the pod"}}, "cilium-b1 b1-old", "move the pod"},
		"one never begins, one does": {[]list.BlockRow{{Phase: "InService", NeedsAction: "correct the windows"}, {Phase: "InService"}}, "cilium-b1 b1-old", ""},
		"one begins, one never does": {[]list.BlockRow{{Phase: "InService"}, {Phase: "InService", NeedsAction: "correct the windows"}}, "cilium-b1 b1-old", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgents(t, "a1:a", "b1:b")
			a.State.Ledger = readOf(t).State.Ledger
			rows := []list.BlockRow{
				{Node: "a1", Phase: "Draining", NeedsAction: "restart", NeedsRestart: true},
				{Node: "b1", Phase: "Draining", NeedsAction: "restart", NeedsRestart: true},
			}
			for _, r := range test.others {
				r.Node = "a1"
				rows = append(rows, r)
			}
			rows, err := a.restarter(1).step(t.Context(), a.Cluster, rows)
			if err != nil || !slices.Equal(a.deleted, []string{test.want}) {
				t.Errorf("restarted %v, %v; want %s", a.deleted, err, test.want)
			}
			if rows[0].NeedsAction != test.people {
				t.Errorf("people must %q on a1, want %q", rows[0].NeedsAction, test.people)
			}
		})
	}
}

// Another's restart may not coincide with one of ours.
func TestRestartsCountWhatOthersRestart(t *testing.T) {
	a := newAgents(t, "a1:a", "b1:b", "c1:c")
	a.starts("c1", "new")
	if got, people := a.step(t, a.restarter(2), "a1", "b1"); len(got)+len(people) > 0 {
		t.Errorf("restarted %v while c1 starts, people must act on %v", got, people)
	}
	a.Objects.Agents = a.Objects.Agents[:0] // no agent's pod is there
	if got, people := a.step(t, a.restarter(5), "a1"); len(got)+len(people) > 0 {
		t.Errorf("restarted %v without an agent, people must act on %v", got, people)
	}
}

// The pod of a failed agent may remain beside the running one.
func TestRestartsTheNewestAgentOfANode(t *testing.T) {
	for name, order := range map[string]func([]corev1.Pod){"listed first": func([]corev1.Pod) {}, "listed last": slices.Reverse[[]corev1.Pod]} {
		t.Run(name, func(t *testing.T) {
			a := newAgents(t, "a1:a")
			runs := a.Objects.Agents[0]
			runs.CreationTimestamp = metav1.Time{Time: a.Now.Add(-time.Hour)}
			failed := *fixtures.AgentPod("a1-failed", "c-failed", false)
			failed.Name, failed.Spec.NodeName = "cilium-a1-failed", "a1"
			failed.CreationTimestamp = metav1.Time{Time: a.Now.Add(-2 * time.Hour)}
			a.Objects.Agents = []corev1.Pod{failed, runs}
			order(a.Objects.Agents)
			if got, people := a.step(t, a.restarter(1), "a1"); !slices.Equal(got, []string{"cilium-a1 a1-old"}) || len(people) > 0 {
				t.Errorf("restarted %v, people must act on %v; want a1-old", got, people)
			}
		})
	}
}

// A terminating agent counts even while it is Ready, and the agent of a node that has opted out
// never does.
func TestRestartsCountAgentsThatMatter(t *testing.T) {
	a := newAgents(t, "a1:a", "b1:b")
	a.Objects.Agents[1].DeletionTimestamp = &metav1.Time{Time: a.Now}
	if got, people := a.step(t, a.restarter(1), "a1"); len(got)+len(people) > 0 {
		t.Errorf("restarted %v while b1 ends, people must act on %v", got, people)
	}
	a = newAgents(t, "a1:a", "b1:b")
	a.Nodes["b1"].Labels[v1alpha1.OptOutLabel] = "true"
	a.starts("b1", "new")
	if got, _ := a.step(t, a.restarter(1), "a1"); !slices.Equal(got, []string{"cilium-a1 a1-old"}) {
		t.Errorf("restarted %v, want a1", got)
	}
}

// If a restart did not help, users must act, and likewise if a row waits for anything else.
func TestRestartsOnce(t *testing.T) {
	a := newAgents(t, "a1:a")
	v := a.restarter(1)
	a.step(t, v, "a1")
	if got, people := a.step(t, v, "a1"); len(got)+len(people) > 0 {
		t.Errorf("restarted %v again before it has gone, people must act on %v", got, people)
	}
	a.runs("a1", "new") // for an hour, and it needs a minute to settle
	later := a.Now
	a.Now = later.Add(-time.Hour + time.Minute + 2*reportEvery)
	if got, people := a.step(t, v, "a1"); len(got)+len(people) > 0 {
		t.Errorf("restarted %v again before it has reported, people must act on %v", got, people)
	}
	a.Now = later
	if got, people := a.step(t, v, "a1"); len(got) > 0 || !slices.Equal(people, []string{"a1"}) {
		t.Errorf("restarted %v again, people must act on %v", got, people)
	}
	rows, err := a.restarter(1).step(t.Context(), a.Cluster, []list.BlockRow{{Node: "a1", NeedsAction: "drain the Node"}})
	if err != nil || rows[0].NeedsAction == "" {
		t.Errorf("%v, %v: the agent is no help there", rows, err)
	}
}
