package plugin

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// withdraw NODE CIDR removes a prefix from the podCIDRs of a node.
func (w *world) cmdWithdraw(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "withdraw NODE CIDR")
	cn := &ciliumv2.CiliumNode{}
	ts.Check(w.client.Get(w.ctx, types.NamespacedName{Name: args[0]}, cn))
	before := len(cn.Spec.IPAM.PodCIDRs)
	cn.Spec.IPAM.PodCIDRs = slices.DeleteFunc(cn.Spec.IPAM.PodCIDRs, func(p iputil.Prefix) bool { return p.String() == args[1] })
	if len(cn.Spec.IPAM.PodCIDRs) == before {
		ts.Fatalf("%s does not list %s", args[0], args[1])
	}
	ts.Check(w.client.Update(w.ctx, cn))
}

// await FILE REGEXP waits until a file matches, ! await until it does not. An empty file
// counts as not written yet.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, false, args, 2, "await FILE REGEXP")
	want, err := regexp.Compile(args[1])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	ts.Check(harness.Soon(ctx, 20*time.Millisecond, func(context.Context) error {
		content, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && (len(content) == 0 || want.Match(content) == neg) {
			err = fmt.Errorf("%s matches %s: %t\n%s", args[0], args[1], neg, content)
		}
		return err
	}))
}
