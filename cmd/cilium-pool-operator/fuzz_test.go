package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// FuzzOptions parses any command line. If it is accepted, the operator can run with it: the policy
// is sound, and a pool without settings is valid. If it is refused, the error names a flag.
func FuzzOptions(f *testing.F) {
	for _, s := range []string{
		"", "--expand-threshold-percent=101", "--reclaim-disabled --reclaim-threshold-percent=99", "--reclaim-threshold-percent=80",
		"--agent-selector=app=x,tier!=y --shortage-taint=a/b", "--ack-hold=-1s --ack-timeout=1h", "--expand-min-free=4096 --max-addresses-per-node=4097",
		"--metrics-bind-address=[::]:1 --health-probe-bind-address=0", "--cooldown=24h --node-gone-cooldown=1s", "--log-level=DPANIC",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		o := defaultOptions()
		fs := pflag.NewFlagSet("fuzz", pflag.ContinueOnError)
		fs.SetOutput(io.Discard)
		o.addFlags(fs)
		if fs.Parse(strings.Fields(line)) != nil {
			return
		}
		if err := o.validate(); err != nil {
			if !strings.Contains(err.Error(), "--") {
				t.Errorf("%q is refused without a flag named: %v", line, err)
			}
			return
		}
		if err := o.settings.Defaults.Policy.Validate(); err != nil {
			t.Errorf("%q is accepted: %v", line, err)
		}
		if o.settings.AgentSelector == nil {
			t.Errorf("%q is accepted without a selector of agents", line)
		}
		plain := &v1alpha1.PodIPPool{}
		plain.Name = "p"
		plain.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 27, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/16"}}}
		p, err := crd.PoolFrom(plain, o.settings.Defaults)
		if err != nil {
			t.Fatalf("with %q no pool is valid: %v", line, err)
		}
		if p.PolicyProblem != nil {
			t.Fatalf("with %q no pool's policy is valid: %v", line, p.PolicyProblem)
		}
		if p.NodeGoneCooldown < p.Cooldown {
			t.Errorf("%q: a gone node's block cools down for %s, any other %s", line, p.NodeGoneCooldown, p.Cooldown)
		}
	})
}
