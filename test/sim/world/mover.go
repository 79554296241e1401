package world

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"regexp"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

// mover is kubectl cilium-pool migrate, one command at a time: the plugin's own
// code, which hands over at each call to the API server and while it sleeps.
type mover struct {
	w *World
	// command is what was last begun, as in "start" or "abort/n1".
	command  string
	pending  *call // nil: no command is under way
	out, err bytes.Buffer
	// code is the exit code of the last command, -1 if it was killed.
	code  int
	woken time.Time // when it wakes up, while it sleeps
	// ready are the nodes that may go back as soon as their agents restart.
	ready map[string]bool

	yield func(*call) bool
	next  func() (*call, bool)
	stop  func()
}

func (m *mover) busy() bool { return m != nil && m.pending != nil }

// commandLine is what people type.
func commandLine(command string) []string {
	verb, node, one := strings.Cut(command, "/")
	switch {
	case one:
		return []string{"migrate", verb, "--node", node}
	case verb == "finish":
		return []string{"migrate", verb}
	}
	return []string{"migrate", verb, "--all"}
}

// begin starts a command, up to its first call.
func (m *mover) begin(command string) {
	m.command, m.code = command, -1
	m.out.Reset()
	m.err.Reset()
	streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &m.out, ErrOut: &m.err}
	root := plugin.NewAt(cli.Place{Client: desk{live{caller: m}}, Now: m.w.Now, Sleep: m.sleep}, streams)
	root.SetArgs(commandLine(command))
	m.next, m.stop = iter.Pull(func(yield func(*call) bool) {
		defer func() {
			if thrown := recover(); thrown != nil && thrown != any(crash{}) {
				panic(thrown)
			}
		}()
		m.yield = yield
		m.code = plugin.Run(root, streams)
	})
	m.resume()
}

// resume lets the command run to its next call, or to its end.
func (m *mover) resume() {
	c, more := m.next()
	if m.pending = c; more {
		return
	}
	m.pending = nil
	m.w.tracef("migrate %s ended with %d: %s%s", m.command, m.code, m.out.String(), m.err.String())
	m.w.Counts.Did["migrate "+strings.SplitN(m.command, "/", 2)[0]]++
	for _, line := range regexp.MustCompile(`(?m)^node/(\S+) is (back|ready)`).FindAllStringSubmatch(m.out.String(), -1) {
		if m.ready[line[1]] = line[2] == "ready"; line[2] == "back" {
			m.w.machine(line[1]).moved, m.w.machine(line[1]).served = false, false
			m.w.Counts.Did["taken back"]++
		}
	}
}

// die ends the command, whatever it was doing.
func (m *mover) die() {
	if m.busy() {
		m.stop()
		m.pending = nil
		m.w.Counts.Faults["migrate killed"]++
	}
}

// HushKills keeps client-go's retries from logging, as a panic, that a command was
// killed in their midst. It is of the whole process.
func HushKills() {
	handlers := utilruntime.PanicHandlers
	utilruntime.PanicHandlers = []func(context.Context, any){func(ctx context.Context, thrown any) {
		if thrown == any(crash{}) {
			return
		}
		for _, handle := range handlers {
			handle(ctx, thrown)
		}
	}}
}

func (m *mover) in() *World { return m.w }

// send hands a call over, and returns once the world let it happen.
func (m *mover) send(c *call) error {
	if !m.yield(c) {
		panic(crash{})
	}
	switch c.fate {
	case failed:
		return errLine
	case unheard:
		_ = m.carryOut(c)
		return errLine
	}
	return m.carryOut(c)
}

// sleep hands over until its time has come.
func (m *mover) sleep(_ context.Context, d time.Duration) error {
	m.woken = m.w.now.Add(d)
	return m.send(&call{verb: "sleep", do: func() error { return nil }})
}

func (m *mover) carryOut(c *call) error {
	m.w.byMover = true
	defer func() { m.w.byMover = false }()
	err := c.do()
	if err != nil {
		m.w.tracef("migrate %s: %v", c, err)
	}
	return err
}

// enableMover is what people type, and what becomes of it.
func (w *World) enableMover() {
	m := w.mover
	if m == nil {
		return
	}
	if !m.busy() {
		for _, command := range []string{"start", "finish", "abort"} {
			w.can(Migrate, people, command)
		}
		for _, node := range w.machines {
			w.can(Migrate, people, "start/"+node.name)
			w.can(Migrate, people, "abort/"+node.name)
		}
		return
	}
	w.canIf(Kill, MigrateDies, people, "")
	if m.pending.verb == "sleep" {
		if !w.now.Before(m.woken) && w.prompt() {
			w.can(MigrateCall, people, "")
		}
		return
	}
	w.can(MigrateCall, people, "")
	w.canIf(Fail, MigrateFails, people, "")
	if m.pending.writes() {
		w.canIf(Unheard, MigrateUnheard, people, "")
		w.canIf(KillAfterWrite, MigrateKills, people, "")
	}
}

// prompt says that agents and kubelets have done what was due: what takes them
// longer than a command is patient is not known to it.
func (w *World) prompt() bool {
	for _, m := range w.machines {
		if !m.reads() || m.off {
			if m.podDue() {
				return false
			}
			continue
		}
		if _, more := m.nextSeen(); more || m.podDue() || m.mayReport() {
			return false
		}
	}
	return true
}

func (w *World) doMover(verb Verb, command string) bool {
	m := w.mover
	switch verb {
	case Migrate:
		m.begin(command)
	case MigrateCall:
		m.resume()
	case MigrateFails:
		w.Counts.Faults["migrate's call failed"]++
		m.pending.fate = failed
		m.resume()
	case MigrateUnheard:
		w.Counts.Faults["migrate's answer lost"]++
		m.pending.fate = unheard
		m.resume()
	case MigrateKills:
		_ = m.carryOut(m.pending)
		m.die()
	case MigrateDies:
		m.die()
	default:
		return false
	}
	return true
}

// desk is a client of all that the plugin reads.
type desk struct{ live }

// Get reads an object, or the mode that all agents start in which no label names.
func (d desk) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	config, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return d.live.Get(ctx, key, obj, opts...)
	}
	return d.send(&call{verb: "get", key: key.String(), do: func() error {
		config.Data = map[string]string{"ipam": "crd", "enable-endpoint-routes": "true"}
		return nil
	}})
}

// List reads all objects of a kind.
func (d desk) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	w := d.in()
	return d.send(&call{verb: "list", key: o.Namespace, do: func() error {
		switch l := list.(type) {
		case *corev1.PodList:
			l.Items = nil
			for _, key := range w.api.Keys(KindPod) {
				pod := w.api.Get(KindPod, key).(*corev1.Pod)
				if o.LabelSelector == nil && needsAddress(pod) || o.LabelSelector != nil && isAgent(pod) {
					l.Items = append(l.Items, *pod.DeepCopy())
				}
			}
		case *corev1.NodeList:
			l.Items = allOf[corev1.Node](w, KindNode)
		case *ciliumv2.CiliumNodeList:
			l.Items = allOf[ciliumv2.CiliumNode](w, KindCiliumNode)
		case *v1alpha1.PodIPPoolList:
			l.Items = allOf[v1alpha1.PodIPPool](w, KindPool)
		case *v1alpha1.PodIPBlockList:
			l.Items = allOf[v1alpha1.PodIPBlock](w, KindBlock)
		case *v1alpha1.PodIPPoolHistoryList:
			l.Items = allOf[v1alpha1.PodIPPoolHistory](w, KindHistory)
		case *networkingv1.ServiceCIDRList:
			l.Items = nil // no Services here
		case *unstructured.UnstructuredList:
			l.Items = w.nodeConfigs()
		default:
			panic(fmt.Sprintf("the simulated API server does not list %T", list))
		}
		return nil
	}})
}

// allOf are copies of all objects of a kind.
func allOf[T any](w *World, kind Kind) []T {
	var out []T
	for _, key := range w.api.Keys(kind) {
		out = append(out, *any(w.api.Get(kind, key).DeepCopyObject()).(*T))
	}
	return out
}

// nodeConfigs are the CiliumNodeConfigs by which nodes start in their old mode.
func (w *World) nodeConfigs() []unstructured.Unstructured {
	var out []unstructured.Unstructured
	for _, m := range w.machines {
		if m.starts == adopt.None {
			continue
		}
		out = append(out, unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": m.name},
			"spec": map[string]any{
				"defaults":     map[string]any{"ipam": string(m.starts)},
				"nodeSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/hostname": m.name}},
			},
		}})
	}
	return out
}
