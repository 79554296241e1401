package world

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

// mover runs kubectl cilium-pool migrate, one command at a time: the plugin's own
// code, which hands over at each call to the API server and while it sleeps.
type mover struct {
	w *World
	// command is the last one, such as "abort/n1".
	command  string
	pending  *call // nil: no command is under way
	out, err bytes.Buffer
	// code is the exit code of the last command, -1 if it was killed.
	code  int
	woken time.Time // when it wakes up, while it sleeps
	// ready are the nodes that may go back as soon as their agents restart.
	ready map[string]bool

	run coroutine
}

func (m *mover) busy() bool { return m != nil && m.pending != nil }

// commandLine returns the arguments that users type.
func (m *mover) commandLine() []string {
	verb, node, one := strings.Cut(m.command, "/")
	switch {
	case one:
		return []string{"migrate", verb, "--node", node}
	case verb == "finish":
		return []string{"migrate", verb}
	}
	return []string{"migrate", verb, "--all"}
}

// begin starts a command and runs it to its first call.
func (m *mover) begin(command string) {
	m.command, m.code = command, -1
	m.out.Reset()
	m.err.Reset()
	streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &m.out, ErrOut: &m.err}
	root := plugin.NewAt(cli.Place{Client: cliClient{live{caller: m}}, Now: m.w.Now, Sleep: m.sleep}, streams)
	root.SetArgs(m.commandLine())
	m.run.begin(func() { m.code = plugin.Run(root, streams) })
	m.resume()
}

// resume runs the command to its next call, or to its end.
func (m *mover) resume() {
	c, more := m.run.next()
	if m.pending = c; more {
		return
	}
	m.pending = nil
	m.w.tracef("migrate %s ended with %d: %s%s", m.command, m.code, m.out.String(), m.err.String())
	for _, line := range regexp.MustCompile(`(?m)^node/(\S+) is (back|ready)`).FindAllStringSubmatch(m.out.String(), -1) {
		if m.ready[line[1]] = line[2] == "ready"; line[2] == "back" {
			m.w.machine(line[1]).moved, m.w.machine(line[1]).served = false, false
		}
	}
}

// die ends the command, wherever it is.
func (m *mover) die() {
	if m.busy() {
		m.run.stop()
		m.pending = nil
	}
}

// HushKills keeps client-go's retries from logging the kill of a command as a panic. It applies
// to the whole process.
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

func (m *mover) send(c *call) error { return m.run.send(c, m.carryOut) }

// sleep hands over until the time has come.
func (m *mover) sleep(_ context.Context, d time.Duration) error {
	m.woken = m.w.clock.now.Add(d)
	return m.send(&call{verb: "sleep", do: func() error { return nil }})
}

func (m *mover) carryOut(c *call) error {
	m.w.rules.byMover = true
	defer func() { m.w.rules.byMover = false }()
	err := c.do()
	if err != nil {
		m.w.tracef("migrate %s: %v", c, err)
	}
	return err
}

// enableMover enables the commands that users type, and the outcomes of their calls.
func (mg *migration) enableMover() {
	m := mg.mover
	if m == nil {
		return
	}
	if !m.busy() {
		mg.enableMigrate()
		return
	}
	mg.canIf(Kill, CommandDies, people, "")
	if m.pending.verb == "sleep" {
		if !mg.clock.now.Before(m.woken) && mg.prompt() {
			mg.can(CommandCall, people, "")
		}
		return
	}
	mg.can(CommandCall, people, "")
	mg.canIf(Fail, CommandFails, people, "")
	if m.pending.writes() {
		mg.canIf(Unheard, CommandUnheard, people, "")
		mg.canIf(KillAfterWrite, CommandKills, people, "")
	}
}

// enableMigrate enables the commands for nodes that migrate.
func (mg *migration) enableMigrate() {
	for _, command := range []string{"start", "finish", "abort"} {
		mg.can(Migrate, people, command)
	}
	for _, node := range mg.machines {
		mg.can(Migrate, people, "start/"+node.name)
		mg.can(Migrate, people, "abort/"+node.name)
	}
}

// prompt reports whether agents and kubelets have done everything that was due. The command
// does not know of anything that takes longer than its patience.
func (mg *migration) prompt() bool {
	for _, m := range mg.machines {
		if !m.reads() || m.off {
			if m.kubelet.podDue() {
				return false
			}
			continue
		}
		if _, more := m.nextSeen(); more || m.kubelet.podDue() || m.mayReport() {
			return false
		}
	}
	return true
}

func (mg *migration) doMover(verb Verb, command string) bool {
	m := mg.mover
	switch verb {
	case Migrate:
		m.begin(command)
	case CommandCall:
		m.resume()
	case CommandFails:
		m.pending.fate = failed
		m.resume()
	case CommandUnheard:
		m.pending.fate = unheard
		m.resume()
	case CommandKills:
		_ = m.carryOut(m.pending)
		m.die()
	case CommandDies:
		m.die()
	default:
		return false
	}
	return true
}

// cliClient is a client for everything that the plugin reads.
type cliClient struct{ live }

// Get reads an object, the default mode of agents on Nodes that no label names, or the settings
// that operators publish.
func (d cliClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		return d.send(&call{verb: "get", key: key.String(), do: func() error {
			obj.Data = map[string]string{"ipam": "crd", "enable-endpoint-routes": "true"}
			return nil
		}})
	case *coordinationv1.Lease:
		return d.send(&call{verb: "get", key: key.String(), do: func() error {
			settings := d.in().processes.settings()
			body, err := settings.Publish()
			obj.Labels = map[string]string{v1alpha1.ModeLabel: string(ciliumnode.CRD)}
			obj.Annotations = map[string]string{v1alpha1.SettingsAnnotation: body}
			return err
		}})
	}
	return d.live.Get(ctx, key, obj, opts...)
}

// Patch writes an object, unless it is a dry run.
func (d cliClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if o := (&client.PatchOptions{}).ApplyOptions(opts); len(o.DryRun) > 0 {
		return d.send(&call{verb: "get", kind: kindOf(obj), key: keyOf(obj), sub: "dry-run", do: func() error { return nil }})
	}
	return d.live.Patch(ctx, obj, patch, opts...)
}

// allOf returns copies of all objects of a kind.
func allOf[T any](w *World, kind Kind) []T {
	var out []T
	for _, key := range w.api.Keys(kind) {
		out = append(out, *any(w.api.Get(kind, key).DeepCopyObject()).(*T))
	}
	return out
}

// nodeConfigs returns the CiliumNodeConfigs that make nodes start in their old mode.
func (mg *migration) nodeConfigs() []unstructured.Unstructured {
	var out []unstructured.Unstructured
	for _, m := range mg.machines {
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
