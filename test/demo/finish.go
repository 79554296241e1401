package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// finish prints what became of it all.
func (s *story) finish(ctx context.Context) error {
	if err := s.checker.Sync(ctx); err != nil {
		return err
	}
	if err := s.checker.AskAgents(ctx); err != nil {
		return err
	}
	seen, err := s.look(ctx)
	if err != nil {
		return err
	}
	s.heading("At the end")
	s.text("%s\n%s", s.nodeTable(seen), poolTable(seen))
	if err := s.kubectl(ctx, "get", "podippools"); err != nil {
		return err
	}
	if err := s.kubectl(ctx, "get", "podipblocks", "--field-selector=spec.poolName="+zones[0]); err != nil {
		return err
	}
	s.verdict()
	return nil
}

func (s *story) verdict() {
	stats, violations := s.checker.Stats(), s.checker.Violations()
	s.heading("Outcome")
	s.text("%s in %.0f s: %s claimed, of which %d to grow; %s given back, %s undone",
		plural(len(s.names), "node"), time.Since(s.begin).Seconds(),
		plural(stats.Claims, "block"), stats.Expansions, plural(stats.Reclaims, "block"), plural(stats.Undrains, "drain"))
	s.text("CNI ADDs: %d succeeded; %d failed and were tried again, as kubelet does, %d of them while there was no operator",
		s.fleet.added.Load(), s.fleet.failed.Load(), s.failedWithout)
	s.text("addresses: %d published, %d asked back, %d taken out", stats.Published, stats.Marked, stats.Removed)
	s.text("invariants: %s; the agents were asked %d times what they hold", stats, stats.AgentChecks)
	if stats.Gaps > 0 {
		s.failures = append(s.failures, "the invariant check missed versions")
	}
	for _, v := range violations {
		s.failures = append(s.failures, "broken: "+v.String())
	}
	if len(s.failures) == 0 {
		s.text("%s", s.paint(green, "no rule was broken, and everything came as expected"))
		return
	}
	for _, f := range s.failures {
		s.text("%s", s.paint(red, f))
	}
	s.text("the operator's log is %s", filepath.Join(s.dir, operatorName+".log"))
}

// peaks are the most blocks each node had published at a time.
type peaks struct {
	mu     sync.Mutex
	blocks map[string]int
}

func (p *peaks) see(c invariant.Change) {
	cn, ok := c.New.(*ciliumv2.CiliumNode)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.blocks == nil {
		p.blocks = map[string]int{}
	}
	p.blocks[c.Name] = max(p.blocks[c.Name], len(cn.Spec.IPAM.PodCIDRs))
}

func (p *peaks) of(node string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.blocks[node]
}

func (s *story) nodeTable(seen *sight) string {
	return table("NODE\tZONE\tBLOCKS\tAT MOST\tADDRESSES\tUSED\tUTILISATION\tPODS\tPOD CIDRS", len(seen.nodes), func(i int) string {
		n := seen.nodes[i]
		return fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%d\t%s\t%d\t%s",
			n.name, n.zone, len(n.blocks)+len(n.leaving), s.peaks.of(n.name), n.addresses, n.used, percent(n.used, n.addresses), n.running,
			strings.Join(append(n.blocks, n.leaving...), " "))
	})
}

func poolTable(seen *sight) string {
	return table("POOL\tBLOCKS\tIN SERVICE\tDRAINING\tCOOLING DOWN\tFREE\tADDRESSES\tIN SERVICE\tNODES", len(seen.pools), func(i int) string {
		p := seen.pools[i]
		f := p.Status.IPv4
		if f == nil {
			f = &v1alpha1.FamilyStatus{}
		}
		return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d", p.Name, f.Blocks.Total, f.Blocks.InService, f.Blocks.Draining,
			f.Blocks.CoolingDown, f.Blocks.Free, f.Addresses.Total, f.Addresses.InService, p.Status.Nodes)
	})
}

func table(head string, rows int, row func(int) string) string {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, head)
	for i := range rows {
		fmt.Fprintln(w, row(i))
	}
	_ = w.Flush() // a Buffer takes everything
	return out.String()
}

func percent(part, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", part*100/of)
}

// kubectl shows what a user of the cluster sees.
func (s *story) kubectl(ctx context.Context, args ...string) error {
	args = append([]string{"--kubeconfig=" + filepath.Join(s.dir, "kubeconfig")}, args...)
	out, err := exec.CommandContext(ctx, filepath.Join(s.binDir, "kubectl"), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	s.text("%s\n%s", s.paint(bold, "$ kubectl "+strings.Join(args[1:], " ")), out)
	return nil
}
