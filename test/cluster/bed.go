//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
	"github.com/cilium-pool/cilium-pool-operator/test/cluster/page"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	// readyTimeout is the time for agents and pods to become Ready: each agent compiles its
	// datapath.
	readyTimeout = 5 * time.Minute
	startPage    = "docs/install.md"
	// The page marks the commands that install Cilium, the operator and pools.
	beginMark = "<!-- install: begin -->"
	endMark   = "<!-- install: end -->"
	// labelNodes is the beginning of one of them.
	labelNodes = "kubectl label nodes --all "
	// forcedCilium are the values that this machine requires, each with its reason. The other
	// differences from the page: the chart is the folder in Cilium's Go module, of the version
	// that the page must name, as there is no network outside this machine, and nodes have
	// all images from the start. The API server has the address of examples/.
	forcedCilium = " -f test/cluster/forced/cilium.yaml"
)

// bed is a cluster with its installation.
type bed struct {
	stopwatch
	options options
	cluster *kube.Cluster
	// installed is true while the cluster is as docs/install.md makes it, with probes.
	installed bool
}

func newBed(o options) *bed {
	b := &bed{options: o, stopwatch: stopwatch{began: time.Now()}}
	var images []string
	if o.images != "" {
		images = strings.Split(o.images, ",")
	}
	b.cluster = kube.New(kube.Config{Dir: o.dir, BinDir: o.binDir, CacheDir: o.cache, Images: images, Say: b.say})
	return b
}

// start starts the control plane and the nodes, and imports the operator's image into them.
func (b *bed) start(ctx context.Context) error {
	if err := b.cluster.Down(); err != nil {
		return err
	}
	if err := b.cluster.StartControlPlane(ctx); err != nil {
		return err
	}
	b.say("the control plane serves")
	if err := b.linkTools(); err != nil {
		return err
	}
	for number := 1; number <= b.options.nodes; number++ {
		if err := b.cluster.StartNode(ctx, number); err != nil {
			return err
		}
	}
	if err := b.importAll(ctx, b.options.operator); err != nil {
		return err
	}
	return kube.Await(ctx, 2*time.Minute, "all nodes are registered", func(ctx context.Context) error {
		out, err := b.cluster.Kubectl(ctx, "get", "nodes", "--output=name")
		if err == nil && len(strings.Fields(out)) != b.options.nodes {
			err = errors.New(out)
		}
		return err
	})
}

// importAll imports an image into all nodes.
func (b *bed) importAll(ctx context.Context, image string) error {
	return harness.Parallel(ctx, b.options.nodes, b.options.nodes, func(ctx context.Context, i int) error { return b.cluster.Import(ctx, i+1, image) })
}

// toolDir returns the folder of kubectl, its plugin and helm, for the documentation's
// commands.
func (b *bed) toolDir() string { return filepath.Join(b.options.dir, "bin") }

func (b *bed) linkTools() error {
	if err := os.MkdirAll(b.toolDir(), 0o755); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"kubectl":             filepath.Join(b.options.binDir, "kubectl"),
		"kubectl-cilium_pool": filepath.Join(b.options.binDir, "kubectl-cilium_pool"),
		"helm":                b.options.helm,
		"helm3":               b.options.helm3,
	} {
		if err := os.Symlink(target, filepath.Join(b.toolDir(), name)); err != nil {
			return err
		}
	}
	return nil
}

// environment returns the variables of scripts: parts of command lines, for sh -c.
func (b *bed) environment() map[string]string {
	const operator = "charts/cilium-pool-operator -n kube-system"
	arguments := " -n kube-system -f examples/cilium-values.yaml" + forcedCilium
	return map[string]string{
		"KUBECONFIG": b.cluster.Kubeconfig(), "PATH": b.toolDir() + ":" + os.Getenv("PATH"), "HOME": b.options.dir, "DIR": b.options.dir,
		"CILIUM": b.options.cilium + arguments, "OLD_CILIUM": b.options.oldCilium + arguments, "OLD_CILIUM_IMAGE": b.options.oldImage,
		"OPERATOR": operator + " -f examples/values.yaml", "OLD_OPERATOR": b.options.oldOperator, "OLDER_OPERATOR": b.options.olderOperator,
		"MINUTES": os.Getenv("MINUTES"), "OWNERS": os.Getenv("OWNERS"), "SAMPLES": os.Getenv("SAMPLES"),
		"UPGRADE": "helm upgrade cilium-pool-operator " + operator + " --reuse-values --wait --timeout=3m",
		// It makes idle blocks return while a scenario waits.
		"QUICK": "--set reclaim.idleFor=10s,cooldown=5s,extraArgs[0]=--ack-hold=5s,extraArgs[1]=--agent-settle-time=10s",
	}
}

// shell runs a command line of the documentation in the folder of the checkout. Its output
// goes to the log of commands.
func (b *bed) shell(ctx context.Context, line string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = b.options.repository, os.Environ()
	for name, value := range b.environment() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	log, logErr := os.OpenFile(filepath.Join(b.cluster.Logs(), "commands.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if logErr != nil {
		return "", logErr
	}
	defer log.Close()
	fmt.Fprintf(log, "%s\n$ %s\n%s\n", time.Now().Format(time.RFC3339), line, out)
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", line, err, lastLines(string(out), 10))
	}
	return string(out), nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// documented runs the commands of docs/install.md that have this beginning.
func (b *bed) documented(ctx context.Context, beginning string) error {
	text, err := os.ReadFile(filepath.Join(b.options.repository, startPage))
	if err != nil {
		return err
	}
	all := documentedCommands(string(text))
	if len(all) == 0 {
		return errors.New(startPage + " has no commands between " + beginMark + " and " + endMark)
	}
	for _, line := range all {
		if line, err = b.force(line); err != nil {
			return err
		}
		if line == "" || !strings.HasPrefix(line, beginning) {
			continue
		}
		b.say("$ %s", line)
		if _, err := b.shell(ctx, line); err != nil {
			return err
		}
	}
	return nil
}

// documentedCommands returns the marked commands of a page, each on one line.
func documentedCommands(text string) (commands []string) {
	_, text, _ = strings.Cut(text, beginMark)
	text, _, found := strings.Cut(text, endMark)
	if !found {
		return nil
	}
	for _, code := range page.OfLanguage(text, "sh") {
		commands = append(commands, commandLines(code)...)
	}
	return commands
}

var continuation = regexp.MustCompile(`\s*\\\n\s*`)

// commandLines returns the commands of a block, each on one line.
func commandLines(block string) (commands []string) {
	for line := range strings.Lines(continuation.ReplaceAllString(block, " ")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			commands = append(commands, line)
		}
	}
	return commands
}

var remoteChart = regexp.MustCompile(`\bcilium/cilium --version (\S+)`)

// force changes a documented command line for this machine; it returns "" if the machine does
// not need the command.
func (b *bed) force(line string) (string, error) {
	if strings.HasPrefix(line, "helm repo ") {
		return "", nil
	}
	m := remoteChart.FindStringSubmatch(line)
	if m == nil {
		return line, nil
	}
	data, err := os.ReadFile(filepath.Join(b.options.cilium, "Chart.yaml"))
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(data), "\nversion: "+m[1]+"\n") {
		return "", fmt.Errorf("documented is Cilium %s, but another version was built: %s", m[1], b.options.cilium)
	}
	return strings.Replace(line, m[0], b.options.cilium, 1) + forcedCilium, nil
}

// ready waits until agents, operator, nodes and probes are Ready. A peer has no operator of
// ours: Cilium allocates addresses itself.
func (b *bed) ready(ctx context.Context, peer bool) error {
	system := []string{"daemonset/cilium"}
	if !peer {
		system = append(system, "deployment/cilium-pool-operator")
	}
	if err := b.rollout(ctx, "kube-system", system...); err != nil {
		return err
	}
	if _, err := b.cluster.Kubectl(ctx, "wait", "node", "--all", "--for=condition=Ready", "--timeout=1m"); err != nil {
		return err
	}
	if _, err := b.shell(ctx, "kubectl apply -f test/cluster/manifests/probe.yaml"); err != nil {
		return err
	}
	return b.rollout(ctx, "default", "daemonset/probe", "daemonset/probe-host")
}

func (b *bed) rollout(ctx context.Context, namespace string, workloads ...string) error {
	for _, what := range workloads {
		if _, err := b.cluster.Kubectl(ctx, "--namespace="+namespace, "rollout", "status", what, "--timeout="+readyTimeout.String()); err != nil {
			return err
		}
	}
	return nil
}

// install makes a new cluster what docs/install.md says, with probes.
func (b *bed) install(ctx context.Context) error {
	if err := b.documented(ctx, ""); err != nil {
		return err
	}
	return b.ready(ctx, false)
}
