package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// parsed returns the options of a command line.
func parsed(t *testing.T, args ...string) *options {
	t.Helper()
	o, err := parse(args)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func parse(args []string) (*options, error) {
	o := defaultOptions()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.addFlags(fs)
	return o, fs.Parse(args)
}

// Every message names the flag, its value and the allowed values.
func TestValidate(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string // nil: valid
	}{
		"the defaults":           {},
		"no metrics, no probes":  {args: []string{"--metrics-bind-address=0", "--health-probe-bind-address=0"}},
		"IPv6 addresses":         {args: []string{"--metrics-bind-address=[::1]:9870"}},
		"reclaim switched off":   {args: []string{"--reclaim-policy=Never", "--reclaim-threshold-percent=99"}},
		"reclaim policy":         {args: []string{"--reclaim-policy=never"}, want: []string{"--reclaim-policy is never", "WhenIdle or Never"}},
		"no limit on reclaims":   {args: []string{"--reclaims-per-minute=Unlimited", "--reclaims-per-minute-per-pool=Unlimited"}},
		"expand percent":         {args: []string{"--expand-threshold-percent=101"}, want: []string{"--expand-threshold-percent is 101", "1 to 100"}},
		"min free":               {args: []string{"--expand-min-free-addresses=-1"}, want: []string{"--expand-min-free-addresses is -1", "0 to 4096"}},
		"min free above the cap": {args: []string{"--expand-min-free-addresses=10", "--max-addresses-per-node=10"}, want: []string{"--expand-min-free-addresses is 10", "--max-addresses-per-node", "below 10"}},
		"max blocks":             {args: []string{"--expand-max-blocks-per-node=0"}, want: []string{"--expand-max-blocks-per-node is 0", "1 to 1024"}},
		"max addresses":          {args: []string{"--max-addresses-per-node=0"}, want: []string{"--max-addresses-per-node is 0", "1 to 8192"}},
		"too many addresses":     {args: []string{"--max-addresses-per-node=24000"}, want: []string{"--max-addresses-per-node is 24000", "1 to 8192"}},
		"reclaim percent":        {args: []string{"--reclaim-threshold-percent=100"}, want: []string{"--reclaim-threshold-percent is 100", "0 to 99"}},
		"reclaim above expand": {
			args: []string{"--reclaim-threshold-percent=80"},
			want: []string{"--reclaim-threshold-percent is 80", "--expand-threshold-percent (80)", "lower the one or raise the other"},
		},
		"idle for":        {args: []string{"--reclaim-idle-for=-1s"}, want: []string{"--reclaim-idle-for is -1s", "0s to 168h0m0s"}},
		"pressure":        {args: []string{"--reclaim-pressure-percent=101"}, want: []string{`"101"`, `"--reclaim-pressure-percent"`, "from 1 to 100, or Never"}},
		"blocks per hour": {args: []string{"--maintenance-blocks-per-hour=-1"}, want: []string{`"-1"`, `"--maintenance-blocks-per-hour"`, "from 1 to 1000000, or Unlimited"}},
		"windows": {
			args: []string{`--maintenance-windows=[{"schedule":"0 22 * * *","duration":"6h","timeZone":"Asia/Shanghai"}]`},
		},
		"windows that are none": {args: []string{"--maintenance-windows=nightly"}, want: []string{"--maintenance-windows is nightly", "must be a JSON list"}},
		"windows misspelt": {
			args: []string{`--maintenance-windows=[{"cron":"0 22 * * *","duration":"6h"}]`},
			want: []string{"--maintenance-windows", "must be a JSON list"},
		},
		"one window too many": {
			args: []string{"--maintenance-windows=[" + strings.Repeat(`{"schedule":"@daily","duration":"6h"},`, 16) + `{"schedule":"@daily","duration":"6h"}]`},
			want: []string{"--maintenance-windows", "must have at most 16 items"},
		},
		"windows that pools may not have": {
			args: []string{`--maintenance-windows=[{"schedule":"0  22 * * *","duration":"6h"}]`},
			want: []string{"--maintenance-windows", "one space between fields"},
		},
		"windows that never open": {
			args: []string{`--maintenance-windows=[{"schedule":"0 24 * * *","duration":"6h"}]`},
			want: []string{"--maintenance-windows", "[0]", "is not cron's five fields"},
		},
		"ack hold":                              {args: []string{"--ack-hold=-1s"}, want: []string{"--ack-hold is -1s"}},
		"ack timeout":                           {args: []string{"--ack-timeout=0s"}, want: []string{"--ack-timeout is 0s", "update rate"}},
		"cooldown of agents that return blocks": {args: []string{"--mode=multi-pool", "--cooldown=0s"}, want: []string{"--cooldown is 0s", "between 30s and 24h0m0s"}},
		"cooldown":                              {args: []string{"--cooldown=25h"}, want: []string{"--cooldown is 25h0m0s", "between 0s and 24h0m0s"}},
		"node-gone cooldown":                    {args: []string{"--node-gone-cooldown=-1m"}, want: []string{"--node-gone-cooldown is -1m0s", "between"}},
		"settle time":                           {args: []string{"--agent-settle-time=2h"}, want: []string{"--agent-settle-time is 2h0m0s", "between"}},
		"lease duration":                        {args: []string{"--leader-elect-lease-duration=1s"}, want: []string{"--leader-elect-lease-duration is 1s", "between 3s and 5m0s"}},
		"workers":                               {args: []string{"--node-workers=0"}, want: []string{"--node-workers is 0", "between 1 and 1024"}},
		"reclaims":                              {args: []string{"--reclaims-per-minute=0"}, want: []string{`"0"`, `"--reclaims-per-minute"`, "or Unlimited"}},
		"reclaims of a pool":                    {args: []string{"--reclaims-per-minute-per-pool=never"}, want: []string{`"--reclaims-per-minute-per-pool"`}},
		"compaction alone":                      {args: []string{"--compact-blocks"}, want: []string{"--compact-blocks is true", "needs --park-draining-blocks"}},
		"certificate unused":                    {args: []string{"--metrics-secure=false", "--metrics-cert-dir=/certs"}, want: []string{"--metrics-cert-dir is /certs", "needs --metrics-secure"}},
		"metrics address":                       {args: []string{"--metrics-bind-address=9870"}, want: []string{"--metrics-bind-address is 9870", ":port, or 0"}},
		"probe address":                         {args: []string{"--health-probe-bind-address=x"}, want: []string{"--health-probe-bind-address is x", ":port, or 0"}},
		"log level":                             {args: []string{"--log-level=loud"}, want: []string{"--log-level is loud", "debug, info, warn or error"}},
		"log format":                            {args: []string{"--log-format=xml"}, want: []string{"--log-format is xml", "json or console"}},
		"agent selector of all pods":            {args: []string{"--agent-selector="}, want: []string{"every pod would count as an agent"}},
		"agent selector":                        {args: []string{"--agent-selector=a in"}, want: []string{"--agent-selector is a in", "k8s-app=cilium"}},
		"shortage taint":                        {args: []string{"--shortage-taint=a b"}, want: []string{"--shortage-taint is a b", "key of a taint"}},
		"offers":                                {args: []string{"--scheduling-families=ipv6,ipv4"}},
		"no such family":                        {args: []string{"--scheduling-families=ipv4,ipv5"}, want: []string{"--scheduling-families is ipv4,ipv5", "ipv4, ipv6 or both"}},
		"offers of a pool":                      {args: []string{"--scheduling-families=ipv4", "--mode=multi-pool", "--scheduling-webhook=kube-system/w"}},
		"offers of fixed blocks":                {args: []string{"--scheduling-families=ipv4", "--mode=kubernetes"}, want: []string{"--scheduling-families is ipv4", "with --mode=kubernetes nodes offer no addresses"}},
		"a webhook without a namespace":         {args: []string{"--scheduling-webhook=w"}, want: []string{"--scheduling-webhook is w", "namespace/name"}},
		"several at once":                       {args: []string{"--node-workers=0", "--log-format=xml"}, want: []string{"--node-workers", "--log-format"}},
	}
	refused := ""
	for name, test := range tests {
		refused += strings.Join(test.want, " ")
		t.Run(name, func(t *testing.T) {
			o, err := parse(test.args)
			if err == nil {
				err = o.validate()
			}
			if (err == nil) != (test.want == nil) {
				t.Fatalf("got %v", err)
			}
			if err == nil {
				effectiveIsASpec(t, o.settings.Defaults)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in: %v", part, err)
				}
			}
		})
	}
	// The spec of a pool bounds each default of pools.
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	defaultOptions().addFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		if strings.HasSuffix(f.Usage, "pools may say otherwise") && !strings.Contains(refused, f.Name) {
			t.Errorf("no value of --%s is refused", f.Name)
		}
	})
}

// effectiveIsASpec fails the test unless the policy that these flags give to pools is valid as the
// spec of a pool: else the API server would refuse the pools' status.
func effectiveIsASpec(t *testing.T, flags crd.Defaults) {
	t.Helper()
	obj := &v1alpha1.PodIPPool{}
	obj.Name = "p"
	obj.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 27, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/16"}}}
	for _, as := range []string{"flags", "a spec"} {
		p, err := crd.PoolFrom(obj, flags)
		if err != nil || p.Problem() != nil {
			t.Fatalf("as %s no pool is valid: %v, %v", as, err, p.Problem())
		}
		if p.NodeGoneCooldown < p.Cooldown {
			t.Errorf("a gone node's block cools down for %s, any other %s", p.NodeGoneCooldown, p.Cooldown)
		}
		is, s := p.Effective(), &obj.Spec
		s.Expand, s.Reclaim, s.Maintenance, s.UnselectedNodes, s.Cooldown = is.Expand, is.Reclaim, is.Maintenance, is.UnselectedNodes, &is.Cooldown
	}
}

func TestValidateReadsTheAgentSelector(t *testing.T) {
	o := parsed(t, "--agent-selector=app=x,tier!=y")
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	if got := o.settings.AgentSelector.String(); got != "app=x,tier!=y" {
		t.Errorf("selector is %s", got)
	}
}

// Each flag has a description, and no two descriptions are the same.
func TestFlagsAreDocumented(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	defaultOptions().addFlags(fs)
	seen := map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" || seen[f.Usage] != "" {
			t.Errorf("--%s says %q, as --%s does", f.Name, f.Usage, seen[f.Usage])
		}
		seen[f.Usage] = f.Name
	})
}

// FuzzOptions parses any command line. If it is accepted, the operator can run with it: the policy
// is sound, and a pool without settings is valid. If it is refused, the error names a flag.
func FuzzOptions(f *testing.F) {
	for _, s := range []string{
		"", "--expand-threshold-percent=101", "--reclaim-policy=Never --reclaim-threshold-percent=99", "--reclaim-threshold-percent=80",
		"--agent-selector=app=x,tier!=y --shortage-taint=a/b", "--ack-hold=-1s --ack-timeout=1h", "--expand-min-free-addresses=4096 --max-addresses-per-node=4097",
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
		effectiveIsASpec(t, o.settings.Defaults)
	})
}
