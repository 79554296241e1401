//go:build linux

package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
)

const (
	// agentsTimeout is the time for all agents to become Ready after the first command: each
	// compiles its datapath.
	agentsTimeout = 5 * time.Minute
	dnsTimeout    = 4 * time.Minute
)

//go:embed manifests/coredns.yaml
var dnsManifest string

// bed is a cluster with its installation.
type bed struct {
	stopwatch
	options options
	cluster *kube.Cluster
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
	return b.awaitNodes(ctx, b.options.nodes)
}

func (b *bed) awaitNodes(ctx context.Context, want int) error {
	err := kube.Await(ctx, 2*time.Minute, fmt.Sprintf("%d nodes are registered", want), func(ctx context.Context) (bool, string) {
		out, err := b.cluster.Kubectl(ctx, "get", "nodes", "--output=name")
		return err == nil && len(strings.Fields(out)) == want, fmt.Sprint(out, err)
	})
	if err == nil {
		b.say("%d nodes are registered, and have all images", want)
	}
	return err
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

// shell runs a command line of the documentation in the folder of the checkout. Its output
// goes to the log of commands.
func (b *bed) shell(ctx context.Context, line string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	cmd.Dir = b.options.repository
	cmd.Env = append(os.Environ(), "KUBECONFIG="+b.cluster.Kubeconfig(), "PATH="+b.toolDir()+":"+os.Getenv("PATH"))
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

// install runs the commands of docs/install.md.
func (b *bed) install(ctx context.Context) error {
	commands, err := b.installCommands()
	if err != nil {
		return err
	}
	for _, line := range commands {
		b.say("$ %s", line)
		if _, err := b.shell(ctx, line); err != nil {
			return err
		}
	}
	return nil
}

// documented runs the commands of docs/install.md that start with beginning.
func (b *bed) documented(ctx context.Context, beginning string) error {
	commands, err := b.installCommands()
	if err != nil {
		return err
	}
	for _, line := range commands {
		if !strings.HasPrefix(line, beginning) {
			continue
		}
		if _, err := b.shell(ctx, line); err != nil {
			return err
		}
	}
	return nil
}

// awaitInstalled waits until agents and operator run and nodes are Ready.
func (b *bed) awaitInstalled(ctx context.Context) error {
	return b.awaitAgents(ctx, true)
}

// awaitAgents does the same, but without our operator if Cilium allocates addresses itself.
func (b *bed) awaitAgents(ctx context.Context, operator bool) error {
	what := []string{"daemonset/cilium"}
	if operator {
		what = append(what, "deployment/cilium-pool-operator")
	}
	for _, what := range what {
		if err := b.rollout(ctx, "kube-system", what, agentsTimeout); err != nil {
			return err
		}
		b.say("%s: all are Ready", what)
	}
	_, err := b.cluster.Kubectl(ctx, "wait", "node", "--all", "--for=condition=Ready", "--timeout=1m")
	return err
}

func (b *bed) rollout(ctx context.Context, namespace, what string, limit time.Duration) error {
	_, err := b.cluster.Kubectl(ctx, "--namespace="+namespace, "rollout", "status", what, "--timeout="+limit.String())
	return err
}

func (b *bed) installDNS(ctx context.Context) error {
	if err := b.cluster.Apply(ctx, dnsManifest); err != nil {
		return err
	}
	if err := b.rollout(ctx, "kube-system", "deployment/coredns", dnsTimeout); err != nil {
		return err
	}
	b.say("CoreDNS is Ready")
	return nil
}
