package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func agentPod(uid, container string, ready bool) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "cilium-" + uid, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: status}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "other", ContainerID: "x"}, {Name: "cilium-agent", ContainerID: container}},
		},
	}
}

func leaving(p *corev1.Pod) *corev1.Pod {
	now := metav1.NewTime(noon())
	p.DeletionTimestamp = &now
	return p
}

func TestAgentsSettled(t *testing.T) {
	const settle = time.Minute
	after := func(d time.Duration) time.Time { return noon().Add(d) }
	tests := map[string]struct {
		news func(a *Agents)
		at   time.Time
		want bool
		when time.Time // zero: not foreseeable
	}{
		"unknown":             {news: func(*Agents) {}, at: after(time.Hour)},
		"Ready just now":      {news: func(a *Agents) { a.Set(ReadAgent(agentPod("1", "c", true)), noon()) }, at: noon(), when: after(settle)},
		"Ready long enough":   {news: func(a *Agents) { a.Set(ReadAgent(agentPod("1", "c", true)), noon()) }, at: after(settle), want: true, when: after(settle)},
		"not Ready":           {news: func(a *Agents) { a.Set(ReadAgent(agentPod("1", "c", false)), noon()) }, at: after(time.Hour)},
		"not bound to a node": {news: func(a *Agents) { p := agentPod("1", "c", true); p.Spec.NodeName = ""; a.Set(ReadAgent(p), noon()) }, at: after(time.Hour)},
		"on its way out":      {news: func(a *Agents) { a.Set(ReadAgent(leaving(agentPod("1", "c", true))), noon()) }, at: after(time.Hour)},
		"gone": {news: func(a *Agents) {
			a.Set(ReadAgent(agentPod("1", "c", true)), noon())
			a.Delete(ReadAgent(agentPod("1", "c", true)).podKey)
		}, at: after(time.Hour)},
		"another one is gone": {news: func(a *Agents) {
			a.Set(ReadAgent(agentPod("1", "c", true)), noon())
			a.Delete(ReadAgent(agentPod("0", "b", true)).podKey)
		}, at: after(settle), want: true, when: after(settle)},
		"seen again, the same": {news: func(a *Agents) {
			a.Set(ReadAgent(agentPod("1", "c", true)), noon())
			a.Set(ReadAgent(agentPod("1", "c", true)), after(30*time.Second))
		}, at: after(settle), want: true, when: after(settle)},
		"its container restarted": {
			news: func(a *Agents) {
				a.Set(ReadAgent(agentPod("1", "c", true)), noon())
				a.Set(ReadAgent(agentPod("1", "d", true)), after(time.Hour))
			},
			at: after(time.Hour + settle - time.Second), when: after(time.Hour + settle),
		},
		"it was not Ready for a moment": {
			news: func(a *Agents) {
				a.Set(ReadAgent(agentPod("1", "c", true)), noon())
				a.Set(ReadAgent(agentPod("1", "c", false)), after(time.Hour))
				a.Set(ReadAgent(agentPod("1", "c", true)), after(time.Hour+time.Second))
			},
			at: after(time.Hour + settle), when: after(time.Hour + settle + time.Second),
		},
		"replaced, old one first": {
			news: func(a *Agents) {
				a.Set(ReadAgent(agentPod("1", "c", true)), noon())
				a.Delete(ReadAgent(agentPod("1", "c", true)).podKey)
				a.Set(ReadAgent(agentPod("2", "d", true)), after(time.Minute))
			},
			at: after(2 * time.Minute), want: true, when: after(2 * time.Minute),
		},
		"replaced, the old one leaves while the new one runs": {
			news: func(a *Agents) {
				a.Set(ReadAgent(agentPod("1", "c", true)), noon())
				a.Set(ReadAgent(agentPod("2", "d", true)), after(time.Minute))
				a.Set(ReadAgent(leaving(agentPod("1", "c", true))), after(time.Minute))
				a.Delete(ReadAgent(agentPod("1", "c", true)).podKey)
			},
			at: after(time.Hour), want: true, when: after(2 * time.Minute),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			agents := NewAgents(settle)
			test.news(agents)
			got, when := agents.Settled("n", test.at)
			if got != test.want || !when.Equal(test.when) {
				t.Errorf("settled %t, at %s; want %t, at %s", got, when, test.want, test.when)
			}
		})
	}
}

// Two agents' pods may stand on a node for a while; news of the old one must not
// hide the new one for good.
func TestAgentsTwoPodsOfANode(t *testing.T) {
	agents := NewAgents(time.Minute)
	agents.Set(ReadAgent(agentPod("1", "c", true)), noon())
	agents.Set(ReadAgent(agentPod("2", "d", true)), noon())
	if settled, _ := agents.Settled("n", noon().Add(time.Hour)); settled {
		t.Error("settled while there are two agents")
	}
	agents.Set(ReadAgent(agentPod("1", "c", false)), noon())
	agents.Delete(ReadAgent(agentPod("1", "c", false)).podKey)
	if settled, when := agents.Settled("n", noon().Add(time.Hour)); !settled {
		t.Errorf("the agent that is left is not settled after an hour, but at %s", when)
	}
	agents.Delete(ReadAgent(agentPod("2", "d", true)).podKey)
	if settled, _ := agents.Settled("n", noon().Add(time.Hour)); settled {
		t.Error("settled without an agent")
	}
}

func TestAgentsSetReportsChanges(t *testing.T) {
	agents := NewAgents(time.Minute)
	for i, step := range []struct {
		pod  *corev1.Pod
		want bool
	}{
		{agentPod("1", "c", false), true},
		{agentPod("1", "c", false), false},
		{agentPod("1", "c", true), true},
		{agentPod("1", "d", true), true},
		{leaving(agentPod("1", "d", true)), true},
	} {
		if got := agents.Set(ReadAgent(step.pod), noon()); got != step.want {
			t.Errorf("step %d reports a change: %t", i, got)
		}
	}
}
