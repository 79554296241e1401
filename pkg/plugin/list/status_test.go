package list

import (
	"strings"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

// A Lease may lack the acquire time of its holder.
func TestDescribeWithoutAcquireTime(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	v := Overview{Operator: clusterread.Leader{Name: "operator-0", Renewed: now}}
	var text cli.Text
	v.Describe(&text, &cli.Output{}, now)
	if want := "operator-0 leads since <unknown>, renewed 0s ago"; !strings.Contains(text.String(), want) {
		t.Errorf("%q is not in:\n%s", want, &text)
	}
}
