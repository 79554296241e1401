package drain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// Invalid arguments are rejected before the progress of a move is read.
func TestParseMove(t *testing.T) {
	other := fixtures.PodIPPool("q", 1, "10.2.0.0/24")
	both := []client.Object{ranged(oldCIDR), other}
	for name, test := range map[string]struct {
		objects      []client.Object
		from, to     string
		wrong, taken string // the error, or the pool with a range left
	}{
		"a new CIDR":            {both, oldCIDR, newCIDR, "", "p"},
		"it was taken out":      {[]client.Object{ranged(newCIDR)}, oldCIDR, newCIDR, "", "p"},
		"the same":              {both, oldCIDR, oldCIDR, "name another range", ""},
		"a CIDR and a pool":     {both, oldCIDR, "q", "must be two CIDRs, or two pools", ""},
		"another family":        {both, oldCIDR, "fd00::/64", "different families", ""},
		"host bits":             {both, oldCIDR, "10.1.0.1/24", "host bits", ""},
		"a part of it":          {both, oldCIDR, "10.0.0.0/25", "10.0.0.0/24 and 10.0.0.0/25 overlap", ""},
		"of another pool":       {both, oldCIDR, "10.2.0.0/24", "10.0.0.0/24 is a CIDR of pool p, and 10.2.0.0/24 of pool q", ""},
		"overlaps another pool": {both, oldCIDR, "10.2.0.0/23", "10.2.0.0/23 overlaps 10.2.0.0/24 of pool q", ""},
		"of no pool":            {both, "10.8.0.0/24", "10.9.0.0/24", "neither", ""},
		"pools":                 {both, "p", "q", "", "p"},
		"no such pool":          {both, "p", "qq", "there is no PodIPPool qq", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := parseRenumbering(readOf(t, test.objects...).Cluster, test.from, test.to)
			switch {
			case test.wrong == "" && (err != nil || m.old.pool != test.taken):
				t.Errorf("of pool %q, %v; want %q", m.old.pool, err, test.taken)
			case test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)):
				t.Errorf("%v, want %q", err, test.wrong)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	good := flags{wait: true, maxConcurrent: 1, newRange: "b", maxRestarts: 1}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for name, edit := range map[string]func(*flags){
		"no --to":            func(f *flags) { f.newRange, f.status = "", true },
		"--max-concurrent 0": func(f *flags) { f.maxConcurrent = 0 },
		"--max-restarts 0":   func(f *flags) { f.maxRestarts = 0 },
	} {
		f := good
		edit(&f)
		if err := f.validate(); !errors.As(err, &cli.UsageError{}) {
			t.Errorf("%s: %v, want a usage error", name, err)
		}
	}
}

// newEnv returns an Env with an API server that has the objects of the cluster. Its lists ignore
// selectors.
func (r *renumbered) newEnv() *cli.Env {
	all := interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			return c.List(ctx, list)
		},
	})
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &r.out, ErrOut: &r.errOut}
	e := cli.NewEnv(streams, "", &cli.Place{Client: all, Now: fixtures.Noon, Sleep: func(context.Context, time.Duration) error { return nil }})
	e.AddFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	return e
}

// A command writes only if it was confirmed and does not fail.
func TestRenumberWritesNothing(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kube-system", Name: "cilium-pool-operator", Labels: map[string]string{v1alpha1.ModeLabel: "multi-pool"},
	}}
	usage := func(err error) bool { return errors.As(err, &cli.UsageError{}) }
	for name, test := range map[string]struct {
		objects []client.Object
		edit    func(*flags)
		as      func(error) bool
		says    string
	}{
		"not confirmed":         {nil, func(*flags) {}, usage, "1. PodIPPool p: 10.1.0.0/24 is added, and 10.0.0.0/24 drains"},
		"--dry-run":             {nil, func(f *flags) { f.dryRun = true }, func(err error) bool { return err == nil }, "5. PodIPPool p: 10.0.0.0/24 is taken out"},
		"--dry-run --yes":       {nil, func(f *flags) { f.dryRun, f.yes = true, true }, func(err error) bool { return err == nil }, "4. 0 agents to restart"},
		"--status":              {nil, func(f *flags) { f.status = true }, func(err error) bool { return errors.Is(err, cli.Failed) }, "not begun"},
		"in another mode":       {[]client.Object{lease}, func(f *flags) { f.yes = true }, usage, ""},
		"to abort in that mode": {[]client.Object{lease}, func(f *flags) { f.abort = true }, usage, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := readOf(t, append(test.objects, ranged(oldCIDR))...)
			f := flags{wait: true, maxConcurrent: 1, timeout: time.Second, newRange: newCIDR, maxRestarts: 1}
			test.edit(&f)
			e := r.newEnv()
			c, err := e.ReadAll(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := renumber(t.Context(), e, c, oldCIDR, f); !test.as(err) {
				t.Errorf("%v\n%s", err, r.errOut.String())
			}
			if !strings.Contains(r.out.String(), test.says) {
				t.Errorf("%q is not in:\n%s", test.says, r.out.String())
			}
			if got := r.policies(t); got != oldCIDR {
				t.Errorf("the pool has %s, want %s", got, oldCIDR)
			}
		})
	}
}
