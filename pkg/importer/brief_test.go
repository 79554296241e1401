package importer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

func defaults() crd.Defaults {
	return crd.Defaults{Policy: expand.DefaultPolicy(), Cooldown: time.Minute, NodeGoneCooldown: 10 * time.Minute}
}

// imported reads documents and converts them.
func imported(t *testing.T, convert func([]Object, bool) *Result, docs ...string) *Result {
	t.Helper()
	objects, err := Read("a.yaml", []byte(strings.Join(docs, "\n---\n")))
	if err != nil {
		t.Fatal(err)
	}
	r := convert(objects, false)
	r.Check(defaults(), nil)
	return r
}

// brief returns a line for each pool and for each thing that was lost.
func brief(r *Result) []string {
	var lines []string
	for _, p := range r.Pools {
		s := p.Object.Spec
		line := p.Object.Name
		if s.IPv4 != nil {
			line += ranges(s.IPv4.CIDRs, s.IPv4.BlockSize)
		}
		if s.IPv6 != nil {
			line += ranges(s.IPv6.CIDRs, s.IPv6.BlockSize)
		}
		if s.NodeSelector != nil {
			line += " for " + metav1.FormatLabelSelector(s.NodeSelector)
		}
		if s.CiliumPoolName != "" {
			line += " in ciliumPoolName " + s.CiliumPoolName
		}
		if s.Priority != 0 {
			line += fmt.Sprintf(" priority %d", s.Priority)
		}
		if len(s.Reserved) > 0 {
			var reserved []string
			for _, r := range s.Reserved {
				reserved = append(reserved, r.CIDR)
			}
			line += " reserved " + strings.Join(reserved, ",")
		}
		lines = append(lines, line)
	}
	for _, m := range r.Remarks {
		if m.Lost {
			lines = append(lines, "lost: "+m.Object+": "+m.Field)
		}
	}
	return lines
}

func ranges(cidrs []v1alpha1.PoolCIDR, bits int32) string {
	line := ""
	for _, c := range cidrs {
		line += " " + c.CIDR
		if c.AllocationPolicy != "" {
			line += " (" + string(c.AllocationPolicy) + ")"
		}
	}
	return fmt.Sprintf("%s by /%d", line, bits)
}

// checkResult fails unless the result is as wanted, and one remark contains each of texts.
func checkResult(t *testing.T, r *Result, want []string, texts ...string) {
	t.Helper()
	if diff := cmp.Diff(want, brief(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var all []string
	for _, m := range r.Remarks {
		all = append(all, m.String())
	}
	for _, s := range texts {
		if !strings.Contains(strings.Join(all, "\n"), s) {
			t.Errorf("no remark says %q:\n%s", s, strings.Join(all, "\n"))
		}
	}
}
