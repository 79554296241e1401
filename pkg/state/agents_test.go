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
	const settle = time.Minute
	after := func(d time.Duration) time.Time { return fixtures.Noon().Add(d) }
	tests := map[string]struct {
		news func(a *Agents)
		at   time.Time
		want bool
		when time.Time // zero: not foreseeable
	}{
		"unknown":           {news: func(*Agents) {}, at: after(time.Hour)},
		"Ready just now":    {news: func(a *Agents) { a.Set(ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon()) }, at: fixtures.Noon(), when: after(settle)},
		"Ready long enough": {news: func(a *Agents) { a.Set(ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon()) }, at: after(settle), want: true, when: after(settle)},
		"not Ready":         {news: func(a *Agents) { a.Set(ReadAgent(fixtures.AgentPod("1", "c", false)), fixtures.Noon()) }, at: after(time.Hour)},
		"not bound to a node": {news: func(a *Agents) {
			p := fixtures.AgentPod("1", "c", true)
			p.Spec.NodeName = ""
			a.Set(ReadAgent(p), fixtures.Noon())
		}, at: after(time.Hour)},
		"on its way out": {news: func(a *Agents) { a.Set(ReadAgent(leaving(fixtures.AgentPod("1", "c", true))), fixtures.Noon()) }, at: after(time.Hour)},
		"gone": {news: func(a *Agents) {
			a.Set(ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
			a.Delete(ReadAgent(fixtures.AgentPod("1", "c", true)).PodKey)
		}, at: after(time.Hour)},
		"another one is gone": {news: func(a *Agents) {
			a.Set(ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
			a.Delete(ReadAgent(fixtures.AgentPod("0", "b", true)).PodKey)
		}, at: after(settle), want: true, when: after(settle)},
		"seen again, the same": {news: func(a *Agents) {
			a.Set(ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
			a.Set(ReadAgent(fixtures.AgentPod("1", "c", true)), after(30*time.Second))
		}, at: after(settle), want: true, when: after(settle)},
		"its container restarted": {
			news: func(a *Agents) {
				a.Set(ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
				a.Set(ReadAgent(fixtures.AgentPod("1", "d", true)), after(time.Hour))
			},
			at: after(time.Hour + settle - time.Second), when: after(time.Hour + settle),
		},
		"it was not Ready for a moment": {
			news: func(a *Agents) {
				a.Set(ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
				a.Set(ReadAgent(fixtures.AgentPod("1", "c", false)), after(time.Hour))
				a.Set(ReadAgent(fixtures.AgentPod("1", "c", true)), after(time.Hour+time.Second))
			},
			at: after(time.Hour + settle), when: after(time.Hour + settle + time.Second),
		},
		"replaced, old one first": {
			news: func(a *Agents) {
				a.Set(ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
				a.Delete(ReadAgent(fixtures.AgentPod("1", "c", true)).PodKey)
				a.Set(ReadAgent(fixtures.AgentPod("2", "d", true)), after(time.Minute))
			},
			at: after(2 * time.Minute), want: true, when: after(2 * time.Minute),
		},
		"replaced, the old one leaves while the new one runs": {
			news: func(a *Agents) {
				a.Set(ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
				a.Set(ReadAgent(fixtures.AgentPod("2", "d", true)), after(time.Minute))
				a.Set(ReadAgent(leaving(fixtures.AgentPod("1", "c", true))), after(time.Minute))
				a.Delete(ReadAgent(fixtures.AgentPod("1", "c", true)).PodKey)
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

// A node may have two agent pods for a while; events of the old one must not hide the new
// one forever.
func TestAgentsTwoPodsOfANode(t *testing.T) {
	agents := NewAgents(time.Minute)
	agents.Set(ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
	agents.Set(ReadAgent(fixtures.AgentPod("2", "d", true)), fixtures.Noon())
	if settled, _ := agents.Settled("n", fixtures.Noon().Add(time.Hour)); settled {
		t.Error("settled while there are two agents")
	}
	agents.Set(ReadAgent(fixtures.AgentPod("1", "c", false)), fixtures.Noon())
	agents.Delete(ReadAgent(fixtures.AgentPod("1", "c", false)).PodKey)
	if settled, when := agents.Settled("n", fixtures.Noon().Add(time.Hour)); !settled {
		t.Errorf("the agent that is left is not settled after an hour, but at %s", when)
	}
	agents.Delete(ReadAgent(fixtures.AgentPod("2", "d", true)).PodKey)
	if settled, _ := agents.Settled("n", fixtures.Noon().Add(time.Hour)); settled {
		t.Error("settled without an agent")
	}
}

func TestAgentsSetReportsChanges(t *testing.T) {
	agents := NewAgents(time.Minute)
	for i, step := range []struct {
		pod  *corev1.Pod
		want bool
	}{
		{fixtures.AgentPod("1", "c", false), true},
		{fixtures.AgentPod("1", "c", false), false},
		{fixtures.AgentPod("1", "c", true), true},
		{fixtures.AgentPod("1", "d", true), true},
		{leaving(fixtures.AgentPod("1", "d", true)), true},
		{endedSoon(fixtures.AgentPod("1", "d", false)), true},
		{endedSoon(fixtures.AgentPod("1", "d", false)), false},
	} {
		if got := agents.Set(ReadAgent(step.pod), fixtures.Noon()); got != step.want {
			t.Errorf("step %d reports a change: %t", i, got)
		}
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
	with := func(ready bool, now, last *corev1.ContainerStateTerminated) *corev1.Pod {
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
		"starts":                            {pod: with(false, nil, nil)},
		"starts, for long":                  {pod: with(false, nil, nil), at: settle, want: true},
		"has no container yet":              {pod: fixtures.AgentPod("1", "", false), at: settle},
		"has ended soon":                    {pod: with(false, ran(time.Second, 1), nil), want: true},
		"starts again after it ended soon":  {pod: with(false, nil, ran(time.Second, 1)), want: true},
		"starts again after it ended late":  {pod: with(false, nil, ran(time.Minute, 1))},
		"starts again after it was stopped": {pod: with(false, nil, ran(time.Second, 0))},
		"is Ready, and once ended soon":     {pod: with(true, nil, ran(time.Second, 1)), at: settle},
		"another container of it ended so":  {pod: otherEnded(with(false, nil, nil), ran(time.Second, 1))},
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

func endedSoon(p *corev1.Pod) *corev1.Pod {
	p.Status.ContainerStatuses[1].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
	return p
}

func otherEnded(p *corev1.Pod, end *corev1.ContainerStateTerminated) *corev1.Pod {
	p.Status.ContainerStatuses[0].State.Terminated = end
	return p
}
