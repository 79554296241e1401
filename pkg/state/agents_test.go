package state

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func leaving(p *corev1.Pod) *corev1.Pod {
	now := metav1.NewTime(fixtures.Noon())
	p.DeletionTimestamp = &now
	return p
}

func TestAgentsSettled(t *testing.T) {
	const settle, minute = time.Minute, time.Minute
	type change struct {
		pod   *corev1.Pod
		after time.Duration
		gone  bool
	}
	ready := func(uid, container string, after time.Duration) change {
		return change{fixtures.AgentPod(uid, container, true), after, false}
	}
	gone := func(uid string) change { return change{fixtures.AgentPod(uid, "c", true), 0, true} }
	notReady, unbound := fixtures.AgentPod("1", "c", false), fixtures.AgentPod("1", "c", true)
	unbound.Spec.NodeName = ""
	tests := map[string]struct {
		changes   []change
		at        time.Duration
		want      bool
		when      time.Duration // 0: not foreseeable
		container string
	}{
		"unknown":              {at: time.Hour},
		"Ready just now":       {changes: []change{ready("1", "c", 0)}, when: settle, container: "c"},
		"Ready long enough":    {changes: []change{ready("1", "c", 0)}, at: settle, want: true, when: settle, container: "c"},
		"not Ready":            {changes: []change{{pod: notReady}}, at: time.Hour, container: "c"},
		"not bound to a node":  {changes: []change{{pod: unbound}}, at: time.Hour},
		"on its way out":       {changes: []change{{pod: leaving(fixtures.AgentPod("1", "c", true))}}, at: time.Hour, container: "c"},
		"gone":                 {changes: []change{ready("1", "c", 0), gone("1")}, at: time.Hour},
		"another one is gone":  {changes: []change{ready("1", "c", 0), gone("0")}, at: settle, want: true, when: settle, container: "c"},
		"seen again, the same": {changes: []change{ready("1", "c", 0), ready("1", "c", minute/2)}, at: settle, want: true, when: settle, container: "c"},
		"its container restarted": {
			changes: []change{ready("1", "c", 0), ready("1", "d", time.Hour)},
			at:      time.Hour + settle - time.Second, when: time.Hour + settle, container: "d",
		},
		"it was not Ready for a moment": {
			changes: []change{ready("1", "c", 0), {pod: notReady, after: time.Hour}, ready("1", "c", time.Hour+time.Second)},
			at:      time.Hour + settle, when: time.Hour + settle + time.Second, container: "c",
		},
		"two agents":              {changes: []change{ready("1", "c", 0), ready("2", "d", 0)}, at: time.Hour},
		"replaced, old one first": {changes: []change{ready("1", "c", 0), gone("1"), ready("2", "d", minute)}, at: 2 * minute, want: true, when: 2 * minute, container: "d"},
		"replaced, while the old one leaves": {
			changes: []change{ready("1", "c", 0), ready("2", "d", minute), {pod: leaving(fixtures.AgentPod("1", "c", true)), after: minute}, gone("1")},
			at:      time.Hour, want: true, when: 2 * minute, container: "d",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			agents := NewAgents(settle)
			for _, c := range test.changes {
				agent := ReadAgent(c.pod)
				if c.gone {
					agents.Delete(agent.PodKey)
				} else if agents.Set(agent, fixtures.Noon().Add(c.after)); agents.Set(agent, fixtures.Noon().Add(c.after)) {
					t.Error("the same again is a change")
				}
			}
			got, when := agents.Settled("n", fixtures.Noon().Add(test.at))
			if want := fixtures.Noon().Add(test.when); got != test.want || when.IsZero() != (test.when == 0) || test.when != 0 && !when.Equal(want) {
				t.Errorf("settled %t, at %s; want %t, at %s", got, when, test.want, want)
			}
			if got := agents.Container("n"); got != test.container {
				t.Errorf("its container is %q, want %q", got, test.container)
			}
		})
	}
}

// An agent that starts with a family without an address on its node exits at once. The exit of an
// agent that ran for long, or was stopped, proves no lack.
func TestAgentMayWaitForFamily(t *testing.T) {
	const settle = time.Minute
	ran := func(d time.Duration, code int32) *corev1.ContainerStateTerminated {
		start := fixtures.Noon().Add(-time.Hour)
		return &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(start), FinishedAt: metav1.NewTime(start.Add(d)), ExitCode: code}
	}
	agentPod := func(ready bool, now, last *corev1.ContainerStateTerminated) *corev1.Pod {
		p := fixtures.AgentPod("1", "c", ready)
		c := &p.Status.ContainerStatuses[1]
		c.State.Terminated, c.LastTerminationState.Terminated = now, last
		return p
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		at   time.Duration
		want bool
	}{
		"starts":                            {pod: agentPod(false, nil, nil)},
		"starts, for long":                  {pod: agentPod(false, nil, nil), at: settle, want: true},
		"has no container yet":              {pod: fixtures.AgentPod("1", "", false), at: settle},
		"has ended soon":                    {pod: agentPod(false, ran(time.Second, 1), nil), want: true},
		"starts again after it ended soon":  {pod: agentPod(false, nil, ran(time.Second, 1)), want: true},
		"starts again after it ended late":  {pod: agentPod(false, nil, ran(time.Minute, 1))},
		"starts again after it was stopped": {pod: agentPod(false, nil, ran(time.Second, 0))},
		"is Ready, and once ended soon":     {pod: agentPod(true, nil, ran(time.Second, 1)), at: settle},
		"another container of it ended so":  {pod: otherEnded(agentPod(false, nil, nil), ran(time.Second, 1))},
	} {
		t.Run(name, func(t *testing.T) {
			agents := NewAgents(settle)
			agents.Set(ReadAgent(test.pod), fixtures.Noon())
			if got, _ := agents.MayWaitForFamily("n", fixtures.Noon().Add(test.at)); got != test.want {
				t.Errorf("may wait: %t, want %t", got, test.want)
			}
		})
	}
}

func otherEnded(p *corev1.Pod, end *corev1.ContainerStateTerminated) *corev1.Pod {
	p.Status.ContainerStatuses[0].State.Terminated = end
	return p
}
