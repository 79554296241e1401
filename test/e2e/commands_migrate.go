//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// The modes of Cilium's IPAM, as its values name them.
const (
	crdMode        = "crd"
	multiPoolMode  = "multi-pool"
	kubernetesMode = "kubernetes"
)

const (
	// firstKill is the time until a command is killed first.
	firstKill = 100 * time.Millisecond
	// killWithin limits when the operator is killed while an agent restarts.
	killWithin = 8 * time.Second
	// operatorGrace is the termination grace period of Cilium's operator.
	operatorGrace = 10 * time.Second
	deleteAgent   = "kubectl -n kube-system delete pod -l k8s-app=cilium --field-selector spec.nodeName="
)

// cmdCilium starts Cilium's own operator, or restarts it; with a mode, with the flags that the example
// values have for it.
func cmdCilium(ctx context.Context, e *env, a *script.Arguments) (err error) {
	var values struct {
		Operator struct {
			ExtraArgs []string `json:"extraArgs"`
		} `json:"operator"`
	}
	if mode := a.Value("mode", ""); mode != "" {
		data, err := os.ReadFile(filepath.Join(e.options.Examples, "cilium-values-"+mode+".yaml"))
		if err := errors.Join(err, yaml.Unmarshal(data, &values)); err != nil {
			return fmt.Errorf("read example: %w", err)
		}
	}
	if a.Take("restart") {
		if err := e.cilium.Stop(operatorGrace); err != nil {
			return err
		}
	}
	e.cilium, err = e.StartCiliumOperator(ctx, values.Operator.ExtraArgs...)
	return err
}

// cmdMode checks that all agents run in a mode.
func cmdMode(_ context.Context, e *env, a *script.Arguments) error {
	want, in := a.Word(), 0
	for _, n := range e.nodes {
		mode, err := n.Mode()
		if err != nil {
			return err
		}
		if mode == want {
			in++
		}
	}
	e.Check(in == len(e.nodes), "agents in mode "+want, "%d of %d", in, len(e.nodes))
	return nil
}

// cmdRules begins to check the rules, or judges them and ends that.
func cmdRules(ctx context.Context, e *env, a *script.Arguments) error {
	if a.Take("end") {
		err := e.judge(ctx)
		e.rules, e.whole = nil, nil
		e.unwatch()
		return err
	}
	ctx, e.unwatch = context.WithCancel(ctx)
	if !a.Take(multiPoolMode) {
		return e.watch(ctx, nil)
	}
	w := whole.New(whole.InPools())
	for kind, list := range map[invariant.Kind]client.ObjectList{
		invariant.KindNode: &corev1.NodeList{}, invariant.KindPool: &v1alpha1.PodIPPoolList{},
		invariant.KindBlock: &v1alpha1.PodIPBlockList{}, invariant.KindCiliumNode: &ciliumv2.CiliumNodeList{},
	} {
		if err := e.Client.List(ctx, list); err != nil {
			return err
		}
		if err := w.Begin(kind, list); err != nil {
			return err
		}
	}
	return e.watch(ctx, w)
}

// cmdKilled runs a command line that must exit with this code, but first kills it with SIGKILL
// several times, each time later, together with the operator. waits is the time that the command
// waits before it acts; such a command is killed less often.
func cmdKilled(ctx context.Context, e *env, a *script.Arguments) error {
	exits := a.Value("exits", "0")
	waits, err := time.ParseDuration(a.Value("waits", "0s"))
	if err != nil {
		return err
	}
	later := time.Duration(6) // fifths
	if waits > 0 {
		later = 8
	}
	line, kills := strings.Join(a.Rest, " "), 0
	for after := firstKill; ctx.Err() == nil; after = after * later / 5 {
		short, cancel := context.WithTimeout(ctx, waits+after)
		out, code, err := e.Shell(short, line)
		cancel()
		if err != nil {
			return err
		}
		if code >= 0 {
			e.logf("%s", out)
			e.Check(fmt.Sprint(code) == exits, line+": exit code, after kills", "%d, %d", code, kills)
			return nil
		}
		kills++
		if err := e.runOperators(1, e.flags); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// cmdRoll deletes an agent's Pod and restarts it in the mode that a label of its Node chooses.
// Meanwhile it kills the operator.
func cmdRoll(ctx context.Context, e *env, a *script.Arguments) error {
	n, err := e.nodeAt(a)
	if err != nil {
		return err
	}
	var down bed.Downtime
	deleted, rolled := make(chan error, 1), make(chan error, 1)
	go func() {
		out, code, err := e.Shell(ctx, deleteAgent+n.Name)
		if err == nil && code != 0 {
			err = errors.New(out)
		}
		deleted <- err
	}()
	go func() {
		var err error
		down, err = n.RollAgent(ctx)
		rolled <- err
	}()
	err = harness.Sleep(ctx, rand.N(killWithin))
	if err == nil {
		err = e.runOperators(1, e.flags)
	}
	if err := errors.Join(err, <-deleted, <-rolled); err != nil {
		return err
	}
	e.churn.wasDown(n.Name, down)
	mode, err := n.Mode()
	e.Note(n.Name+": mode after its agent's restart; the agent was down", "%s; %.1f s", mode, down.Until.Sub(down.From).Seconds())
	return err
}

// cmdTraffic starts connections and churn between the nodes of groups, or ends and judges them.
func cmdTraffic(ctx context.Context, e *env, a *script.Arguments) error {
	if a.Take("end") {
		e.judgeChurn(e.churn)
		return e.judgeConnections(podTraffic, probeTraffic, streamTraffic)
	}
	var pods [][]*bed.Pod
	var nodes []*bed.Node
	for name := a.Word(); name != ""; name = a.Word() {
		group, err := e.group(name)
		if err != nil {
			return err
		}
		pods, nodes = append(pods, group), append(nodes, group[0].Node())
	}
	e.rounds++
	e.churn = e.startChurn(ctx, fmt.Sprintf("churn-%d", e.rounds), nodes)
	return e.startTraffic(pods)
}

// cmdPreserved checks that a CiliumNodeConfig preserves the values of all keys that the move
// changes for agents.
func cmdPreserved(_ context.Context, e *env, a *script.Arguments) error {
	c := &ciliumv2.CiliumNodeConfig{}
	if err := yaml.Unmarshal([]byte(a.Script.ReadFile(a.Word())), c); err != nil {
		return err
	}
	now, then := e.Configs()
	others := differ(now, then, c.Spec.Defaults)
	e.Check(len(others) == 0, "keys that the move changes for agents, and old-ipam.yaml does not preserve", "%d %v", len(others), others)
	return nil
}

// differ returns the keys with different values, except for keys of Cilium's operator
// alone and kept keys.
func differ(before, after, kept map[string]string) []string {
	var keys []string
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		_, keep := kept[key]
		operators := strings.HasPrefix(key, "cluster-pool-") || key == "auto-create-cilium-pod-ip-pools"
		if before[key] != after[key] && !keep && !operators {
			keys = append(keys, key)
		}
	}
	return keys
}
