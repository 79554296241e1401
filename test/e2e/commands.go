//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// command is a command of the scripts.
type command func(context.Context, *env, *script.Arguments) error

// commands adds these commands to testscript's own and those of test/harness/script. Usage:
//
//	bed [patched] [native] [mode=M] [then=M] [before=M] [values=FILE,…] [set=KEY=VALUE,…]   start network and control plane
//	operator [soon] FLAG…   start our operator with the chart's rights, and check the rules from then on
//	operator kill|churn|settle   kill it; kill it, or a second one, every few seconds; end that
//	machine NAME [podcidr=CIDR]; register NAME; node NAME   namespaces; the Node; both, with a healthy agent
//	agent kill|start|restart|wait|until NODE
//	gate NODE shut|open; ready NODE   no answers about pods to the agent; its Pod claims to be Ready
//	config before|moved; ipv6 NODE   switch IPv6 on or off
//	cilium start|restart [mode=M]; mode M   Cilium's operator; all agents run in a mode
//	rules watch [multi-pool]|end; killed [exits=N] [waits=D] LINE; roll NODE   see commands_migrate.go
//	traffic GROUP…|end; preserved FILE   the same
//	pods GROUP NODE COUNT [width=N] [retry] [silent] [namespace=N] [label=K=V] [annotation=K=V] [&]
//	    no ADD may fail, unless retry; what an agent refuses as it is busy is tried again
//	joined   wait for pods that were started with &
//	report GROUP; delete GROUP…; split GROUP every=N|first=N|in=CIDR KEPT REST
//	ping NAME FROM GROUP|outside|health:NODE [first=N] [every=D] [back]; stream NAME FROM GROUP; unbroken NAME…
//	has NODE GROUP…; lost NODE GROUP…   the agent has the pods at their addresses; count those it lost
//	crash NODE GROUP…   kill operator and agent, start both, and check that the agent has the pods
//	await|check NODE CONDITION…; never DURATION NODE CONDITION…   see holds in terms.go
//	remember NODE; choose NODE GROUP [any]; routes NODE OTHER; encrypted FROM GROUP
//	mark NODE GROUP   mark the addresses of running pods for release, by hand
//	event REASON OBJECT TEXT; exempt RULE SUBJECT TEXT; exempt end
//	router NODE…; peers MODE; routed [kept]; session NODE; order   the BGP router
func commands() map[string]command {
	return map[string]command{
		"bed": cmdBed, "operator": cmdOperator, "cilium": cmdCilium, "mode": cmdMode, "rules": cmdRules,
		"killed": cmdKilled, "roll": cmdRoll, "traffic": cmdTraffic, "preserved": cmdPreserved,
		"machine": cmdMachine, "register": cmdRegister, "node": cmdNode, "agent": cmdAgent,
		"gate": cmdGate, "ready": cmdReady, "config": cmdConfig, "ipv6": cmdIPv6,
		"pods": cmdPods, "joined": cmdJoined, "report": cmdReport, "delete": cmdDelete, "split": cmdSplit,
		"ping": cmdPing, "stream": cmdStream, "unbroken": cmdUnbroken,
		"has": cmdHas, "encrypted": cmdEncrypted, "crash": cmdCrash, "lost": cmdLost, "await": cmdAwait, "check": cmdCheck, "never": cmdNever,
		"remember": cmdRemember, "choose": cmdChoose, "routes": cmdRoutes,
		"mark": cmdMark, "event": cmdEvent, "exempt": cmdExempt,
		"router": cmdRouter, "peers": cmdPeers, "routed": cmdRouted, "session": cmdSession, "order": cmdOrder,
	}
}

func cmdBed(ctx context.Context, e *env, a *script.Arguments) (err error) {
	if a.Take("patched") && !e.patched {
		return errors.New("the agents lack the patches of test/cilium/patches: add PATCHED=1 to make e2e")
	}
	o := &e.options
	o.Native, o.IPAM, o.Then = a.Take("native"), a.Value("mode", crdMode), a.Value("then", "")
	if before := a.Value("before", ""); before != "" {
		o.Before, o.IPAM, o.Then = true, before, cmp.Or(o.Then, crdMode)
	}
	for _, v := range strings.Fields(strings.ReplaceAll(a.Value("values", ""), ",", " ")) {
		o.Values = append(o.Values, "cilium-values-"+v+".yaml")
	}
	if set := a.Value("set", ""); set != "" {
		o.Set = strings.Split(set, ",")
	}
	e.Bed, err = bed.Start(ctx, *o)
	return err
}

// moves reports whether the cluster moves between modes.
func (e *env) moves() bool {
	return e.options.Before || e.options.Then == multiPoolMode && e.options.IPAM != multiPoolMode
}

// soon returns flags that make a reclaim start within seconds. The handshake itself keeps its
// defaults.
func soon() []string {
	return []string{"--reclaim-idle-for=5s", "--agent-settle-time=5s", "--cooldown=5s"}
}

func cmdOperator(ctx context.Context, e *env, a *script.Arguments) (err error) {
	switch {
	case a.Take("kill"):
		return e.runOperators(0, e.flags)
	case a.Take("churn"):
		return e.churnOperators(ctx)
	case a.Take("settle"):
		return e.stopOperators()
	}
	var flags []string
	if a.Take("soon") {
		flags = soon()
	}
	if e.flags == nil {
		go e.keepOperators(ctx)
		if err := e.watchFirst(ctx); err != nil {
			return err
		}
	}
	flags = append(flags, a.Rest...)
	if !slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, "--mode=") }) && !e.options.Before {
		flags = append(flags, "--mode="+e.options.IPAM)
	}
	return e.runOperators(1, flags)
}

// watchFirst checks the rules from the first operator on, but for a cluster that it does not manage
// yet.
func (e *env) watchFirst(ctx context.Context) error {
	if e.rules != nil || e.options.Before {
		return nil
	}
	switch e.options.IPAM {
	case multiPoolMode:
		return e.watch(ctx, whole.New(whole.InPools()))
	case kubernetesMode:
		return e.watch(ctx, whole.New(whole.OnNode()))
	}
	return e.watch(ctx, nil)
}

// runOperators kills the operators with SIGKILL, if there are any, and starts so many others.
func (e *env) runOperators(n int, flags []string) (err error) {
	e.renewing.Lock()
	defer e.renewing.Unlock()
	for _, o := range e.operators {
		err = errors.Join(err, o.Kill())
	}
	e.operators, e.flags = nil, flags
	for range n {
		o, startErr := e.StartOperator(flags...)
		e.operators, err = append(e.operators, o), errors.Join(err, startErr)
	}
	return err
}

// keepOperators restarts operators that have ended, as a kubelet does, until ctx ends: one exits by
// itself if the machine is too busy to renew a short Lease.
func (e *env) keepOperators(ctx context.Context) {
	for harness.Sleep(ctx, time.Second) == nil {
		e.renewing.Lock()
		for i, o := range e.operators {
			if o.Running() {
				continue
			}
			e.logf("an operator has ended")
			var err error
			if e.operators[i], err = e.StartOperator(e.flags...); err != nil {
				e.logf("%v", err)
			}
		}
		e.renewing.Unlock()
	}
}

// churnOperators kills one of two operators with SIGKILL every few seconds, at the same times in
// every run as far as the machine allows.
func (e *env) churnOperators(ctx context.Context) error {
	if err := e.runOperators(2, e.flags); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	random, done, killed := rand.New(rand.NewPCG(3, 3)), make(chan error, 1), 0
	go func() {
		var err error
		for harness.Sleep(ctx, time.Second+time.Duration(random.IntN(5000))*time.Millisecond) == nil {
			e.renewing.Lock()
			err = errors.Join(err, e.operators[random.IntN(2)].Kill())
			e.renewing.Unlock()
			killed++
		}
		done <- err
	}()
	e.settle = func() error {
		stop()
		err := <-done
		e.Check(killed > 0, "operators killed", "%d", killed)
		return err
	}
	return nil
}

// stopOperators ends the churn of operators, if there is one.
func (e *env) stopOperators() error {
	settle := e.settle
	if e.settle = nil; settle == nil {
		return nil
	}
	return settle()
}

func cmdMachine(ctx context.Context, e *env, a *script.Arguments) (err error) {
	cidr, name := a.Value("podcidr", ""), a.Word()
	if e.nodes[name], err = e.AddNode(ctx, name); err == nil && cidr != "" {
		e.nodes[name].PodCIDRs = []string{cidr}
	}
	return err
}

func cmdRegister(ctx context.Context, e *env, a *script.Arguments) error {
	n, err := e.nodeAt(a)
	if err != nil {
		return err
	}
	return n.Register(ctx)
}

func cmdNode(ctx context.Context, e *env, a *script.Arguments) (err error) {
	began, name := time.Now(), a.Word()
	n := e.nodes[name]
	if n == nil {
		if n, err = e.AddNode(ctx, name); err != nil {
			return err
		}
		e.nodes[name] = n
	}
	for _, step := range []func(context.Context) error{n.Register, n.StartAgent, n.WaitAgent} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	e.Note(name+": Node created to agent ready", "%.1f s", time.Since(began).Seconds())
	return nil
}

func cmdAgent(ctx context.Context, e *env, a *script.Arguments) error {
	do := a.Word()
	n, err := e.nodeAt(a)
	if err != nil {
		return err
	}
	switch do {
	case "kill":
		return n.KillAgent(ctx)
	case "start":
		return n.StartAgent(ctx)
	case "restart":
		return n.RestartAgent(ctx)
	case "wait":
		return n.WaitAgent(ctx)
	case "until":
		// The agent exits if its node has no address of a family. The operator learns from
		// the exit that the agent runs the family.
		starts, err := n.RestartAgentUntilHealthy(ctx)
		e.Check(err == nil && starts <= 2, n.Name+": starts of the agent until it is healthy", "%d", starts)
		return err
	}
	return fmt.Errorf("agent knows no %q", do)
}

func cmdGate(_ context.Context, e *env, a *script.Arguments) (err error) {
	n, err := e.nodeAt(a)
	if err != nil {
		return err
	}
	if e.gates[n] == nil {
		if e.gates[n], err = n.Gate(); err != nil {
			return err
		}
	}
	if a.Word() == "shut" {
		e.gates[n].Shut()
	} else {
		e.gates[n].Open()
	}
	return nil
}

func cmdReady(ctx context.Context, e *env, a *script.Arguments) error {
	n, err := e.nodeAt(a)
	if err != nil {
		return err
	}
	return n.ClaimReady(ctx)
}

func cmdConfig(ctx context.Context, e *env, a *script.Arguments) error {
	config, moved := e.Configs()
	if a.Word() == "moved" {
		config = moved
	}
	return e.EditConfig(ctx, config)
}

func cmdIPv6(ctx context.Context, e *env, a *script.Arguments) error {
	n, err := e.nodeAt(a)
	if err != nil {
		return err
	}
	return n.AddIPv6(ctx)
}

func cmdExempt(ctx context.Context, e *env, a *script.Arguments) (err error) {
	if rule := a.Word(); rule != "end" {
		number, err := strconv.Atoi(rule)
		if err != nil {
			return err
		}
		e.endExempt, err = e.rules.Exempt(ctx, invariant.Exemption{Rule: number, Subject: a.Word(), Text: a.Word()})
		return err
	}
	return e.endExempt(ctx)
}

func cmdEvent(ctx context.Context, e *env, a *script.Arguments) error {
	reason, object, text := a.Word(), a.Word(), a.Word()
	err := e.Eventually(ctx, "event "+reason, func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := e.Client.List(ctx, events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		for _, ev := range events.Items {
			if ev.Reason == reason && ev.InvolvedObject.Name == object && strings.Contains(ev.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(events.Items))
	})
	e.Check(err == nil, "event "+reason+" of "+object+" names "+text, "%t", err == nil)
	return err
}
