//go:build linux

package main

import (
	"cmp"
	"context"
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
	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// command is a command of the scripts.
type command func(context.Context, *env, *script.Arguments) error

// commands adds these commands to testscript's own and those of test/harness/script. Usage:
//
//	bed [native] [mode=M] [then=M] [before=M] [values=FILE,…] [set=KEY=VALUE,…]   start network and control plane
//	operator [soon] FLAG…   start our operator with the chart's rights, and check the rules from then on
//	operator kill|churn|settle   kill it; kill it, or a second one, every few seconds; end that
//	machine NAME [podcidr=CIDR]; register NAME; node NAME   namespaces; the Node; both, with a healthy agent
//	agent kill|start|restart|wait|until NODE
//	gate NODE shut|open; ready NODE   no answers about pods to the agent; its Pod claims to be Ready
//	config before|moved; ipv6 NODE   switch IPv6 on or off
//	cilium start|restart [mode=M]; mode M   Cilium's operator; all agents run in a mode
//	rules watch [multi-pool]|end; killed [exits=N] [waits=D] LINE; roll NODE   see commands_migrate.go
//	traffic GROUP…|end; preserved FILE [moved]   the same
//	pods GROUP NODE COUNT [width=N] [retry] [silent] [refused=N] [namespace=N] [label=K=V] [annotation=K=V] [&]
//	    no ADD may fail, unless retry; refused: so many may, for another reason than want of an address
//	joined   wait for pods that were started with &
//	report GROUP; delete GROUP…; split GROUP every=N|first=N|in=CIDR KEPT REST
//	ping NAME FROM GROUP|outside|health:NODE [first=N] [every=D] [back]; stream NAME FROM GROUP; unbroken NAME…
//	has NODE GROUP…; lost NODE GROUP…   the agent has the pods at their addresses; count those it lost
//	crash NODE GROUP…   kill operator and agent, start both, and check that the agent has the pods
//	await|check NODE CONDITION…; never DURATION NODE CONDITION…   see holds in terms.go
//	remember NODE; choose NODE GROUP [any]; routes NODE OTHER; carry NODE FROM GROUP…; encrypted FROM GROUP
//	mark NODE GROUP   mark the addresses of running pods for release, by hand
//	event REASON OBJECT TEXT; exempt RULE SUBJECT TEXT; exempt end
//	router NODE…; peers; routed [kept]; session NODE; order   the BGP router
func commands() map[string]command {
	return map[string]command{
		"bed": cmdBed, "operator": cmdOperator, "cilium": cmdCilium, "mode": cmdMode, "rules": cmdRules,
		"killed": cmdKilled, "roll": cmdRoll, "traffic": cmdTraffic, "preserved": cmdPreserved,
		"machine": cmdMachine, "register": cmdRegister, "node": cmdNode, "agent": cmdAgent,
		"gate": cmdGate, "ready": cmdReady, "config": cmdConfig, "ipv6": cmdIPv6,
		"pods": cmdPods, "joined": cmdJoined, "report": cmdReport, "delete": cmdDelete, "split": cmdSplit,
		"ping": cmdPing, "stream": cmdStream, "unbroken": cmdUnbroken,
		"has": cmdHas, "encrypted": cmdEncrypted, "crash": cmdCrash, "lost": cmdLost, "await": cmdAwait, "check": cmdCheck, "never": cmdNever,
		"remember": cmdRemember, "choose": cmdChoose, "routes": cmdRoutes, "carry": cmdCarry,
		"mark": cmdMark, "event": cmdEvent, "exempt": cmdExempt,
		"router": cmdRouter, "peers": cmdPeers, "routed": cmdRouted, "session": cmdSession, "order": cmdOrder,
	}
}

func cmdBed(ctx context.Context, e *env, a *script.Arguments) error {
	o := &e.options
	before := a.Value("before", "")
	o.Before, o.Native, o.IPAM, o.Then = before != "", a.Take("native"), a.Value("mode", cmp.Or(before, crdMode)), a.Value("then", "")
	for _, v := range strings.Fields(strings.ReplaceAll(a.Value("values", ""), ",", " ")) {
		o.Values = append(o.Values, "cilium-values-"+v+".yaml")
	}
	if set := a.Value("set", ""); set != "" {
		o.Set = strings.Split(set, ",")
	}
	if o.Then != "" {
		o.Values, o.ThenValues = nil, o.Values
	}
	if e.moves() {
		e.sandboxTime = sandboxTime // An agent in multi-pool mode looks the pod up first.
	}
	if o.IPAM != crdMode && !o.Before {
		return e.startBeside(ctx, o.IPAM, o.Values...)
	}
	return e.start(ctx)
}

// moves reports whether the cluster moves between modes.
func (e *env) moves() bool { return e.options.Before || e.options.Then == multiPoolMode }

// soon returns flags that make a reclaim start within seconds. The handshake itself keeps its
// defaults.
func soon() []string {
	return []string{"--reclaim-idle-for=5s", "--agent-settle-time=5s", "--cooldown=5s"}
}

func cmdOperator(ctx context.Context, e *env, a *script.Arguments) (err error) {
	switch {
	case a.Take("kill"):
		return e.endOperator()
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
		go e.keepOperator(ctx)
		if err := e.watchFirst(ctx); err != nil {
			return err
		}
	}
	flags = append(flags, a.Rest...)
	if !slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, "--mode=") }) && !e.options.Before {
		flags = append(flags, "--mode="+e.options.IPAM)
	}
	return e.runOperator(flags)
}

// watchFirst checks the rules from the first operator on, but for a cluster that it does not manage
// yet.
func (e *env) watchFirst(ctx context.Context) error {
	if e.rules != nil || e.options.Before {
		return nil
	}
	carrier := map[string]func() whole.Carrier{multiPoolMode: whole.InPools, kubernetesMode: whole.OnNode}[e.options.IPAM]
	if carrier == nil {
		return e.watch(ctx)
	}
	return e.watchWhole(ctx, carrier())
}

// runOperator kills the operator with SIGKILL, if there is one, and starts another one.
func (e *env) runOperator(flags []string) error {
	if err := e.endOperator(); err != nil {
		return err
	}
	e.renewing.Lock()
	defer e.renewing.Unlock()
	e.flags = flags
	o, err := e.StartOperator(flags...)
	e.operator = o
	return err
}

// endOperator kills the operator with SIGKILL, if there is one.
func (e *env) endOperator() error {
	e.renewing.Lock()
	defer e.renewing.Unlock()
	o := e.operator
	if e.operator = nil; o == nil {
		return nil
	}
	return o.Kill()
}

// keepOperator restarts the operator if it has exited by itself, as a kubelet does, until ctx
// ends: it exits if the machine is too busy to renew a short Lease.
func (e *env) keepOperator(ctx context.Context) {
	for pause(ctx, time.Second) == nil {
		e.renewing.Lock()
		if e.operator != nil && !e.operator.Running() {
			e.logf("the operator has ended by itself")
			o, err := e.StartOperator(e.flags...)
			if e.operator = o; err != nil {
				e.logf("%v", err)
			}
		}
		e.renewing.Unlock()
	}
}

// churnOperators starts a second operator and kills one or the other with SIGKILL every few
// seconds, at the same times in every run as far as the machine allows.
func (e *env) churnOperators(ctx context.Context) error {
	second, err := e.StartOperator(e.flags...)
	if err != nil {
		return err
	}
	e.renewing.Lock()
	first := e.operator
	e.operator = nil
	e.renewing.Unlock()
	ctx, stop := context.WithCancel(ctx)
	both, random, done, killed := []*bed.Operator{first, second}, rand.New(rand.NewPCG(3, 3)), make(chan error, 1), 0
	go func() {
		for {
			if pause(ctx, time.Second+time.Duration(random.IntN(5000))*time.Millisecond) != nil {
				done <- nil
				return
			}
			i := random.IntN(len(both))
			err := both[i].Kill()
			killed++
			if err == nil {
				both[i], err = e.StartOperator(e.flags...)
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	e.settle = func() error {
		stop()
		err := <-done
		e.renewing.Lock()
		e.operator = both[0]
		e.renewing.Unlock()
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
	return n.Register(ctx, nil)
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
	if err := e.bringUp(ctx, n); err != nil {
		return err
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
	if a.Word() == "moved" {
		return e.EditConfig(ctx, e.MovedConfig())
	}
	return e.EditConfig(ctx, e.BeforeConfig())
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
