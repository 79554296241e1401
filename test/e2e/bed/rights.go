//go:build linux

package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// grant installs the chart's rights for the operator of each mode, including admission
// policies.
func (b *Bed) grant(ctx context.Context) error {
	rights, err := harness.OperatorRights(ctx, "")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, o := range rights {
		create := func(ctx context.Context) error { // the API server creates the namespace soon
			return client.IgnoreAlreadyExists(b.Client.Create(ctx, o.DeepCopy()))
		}
		if err := harness.Until(ctx, time.Second, create); err != nil {
			return fmt.Errorf("creating %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	for _, mode := range ciliumnode.Modes() {
		config, err := b.cluster.ConfigFor(ctx, harness.ChartNamespace, string(mode))
		if err != nil {
			return err
		}
		if err := controlplane.WriteKubeconfig(b.operatorKubeconfig(string(mode)), config); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bed) operatorKubeconfig(mode string) string {
	return filepath.Join(b.cluster.Dir(), "operator-"+mode+".kubeconfig")
}

// modeOf returns the mode that an operator runs in with these flags.
func modeOf(flags []string) string {
	mode := crdMode
	for _, f := range flags {
		if value, found := strings.CutPrefix(f, "--mode="); found {
			mode = value
		}
	}
	return mode
}

// Refused returns the log lines of operators about requests that the API server refused for
// lack of rights, without duplicates.
func (b *Bed) Refused() ([]string, error) {
	logs, err := filepath.Glob(filepath.Join(b.opts.Logs, "operator*.log"))
	if err != nil {
		return nil, err
	}
	var refused []string
	seen := map[string]bool{}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			_, what, found := strings.Cut(line, " is forbidden: ")
			if what = strings.TrimSpace(what); found && !seen[what] {
				seen[what], refused = true, append(refused, what)
			}
		}
	}
	return refused, nil
}
