package check

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// server answers lists of CiliumNodes; all other lists are empty.
type server struct {
	client.Reader
	nodes func(look int) []ciliumv2.CiliumNode
	look  int
	err   error
}

func (s *server) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	if _, ok := list.(*corev1.PodList); ok && o.FieldSelector != nil {
		s.look++ // a look begins with the pods
	}
	to, ok := list.(*ciliumv2.CiliumNodeList)
	if !ok {
		return nil
	}
	if s.err == nil {
		to.Items = s.nodes(s.look)
	}
	return s.err
}

func node(name, address string) ciliumv2.CiliumNode {
	return *fixtures.Publishing(fixtures.CiliumNode(name, ""), address)
}

func settings() audit.Settings {
	return audit.Settings{Settings: config.DefaultSettings(), StuckAfter: 5 * time.Minute}
}

func reasons(r audit.Report) []string {
	var out []string
	for _, f := range r.Findings {
		out = append(out, string(f.Reason)+" "+f.Object.Name)
	}
	return out
}

// One look is enough without findings; else another one has the last word.
func TestLook(t *testing.T) {
	both := func(int) []ciliumv2.CiliumNode {
		return []ciliumv2.CiliumNode{node("a", "10.0.0.1"), node("b", "10.0.0.1")}
	}
	tests := map[string]struct {
		nodes func(look int) []ciliumv2.CiliumNode
		p     Patience
		looks int
		took  time.Duration
		want  []string
	}{
		"nothing":  {nodes: func(int) []ciliumv2.CiliumNode { return nil }, looks: 1},
		"persists": {nodes: both, looks: 2, took: 5 * time.Second, want: []string{"AddressOnTwoNodes a", "CiliumNodeWithoutNode a", "CiliumNodeWithoutNode b"}},
		"passes": {
			nodes: func(look int) []ciliumv2.CiliumNode {
				if look > 1 {
					return nil
				}
				return both(look)
			},
			looks: 2, took: 5 * time.Second,
		},
		"comes late, and is read again": {
			nodes: func(look int) []ciliumv2.CiliumNode {
				if look < 13 {
					return nil
				}
				return both(look)
			},
			p: Patience{WatchFor: time.Minute}, looks: 14, took: 65 * time.Second,
			want: []string{"AddressOnTwoNodes a", "CiliumNodeWithoutNode a", "CiliumNodeWithoutNode b"},
		},
		"a mark set anew and anew": {
			nodes: func(look int) []ciliumv2.CiliumNode {
				cn := node("a", "10.0.0.1")
				cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{"10.0.0.1": "marked-for-release"}
				cn.ResourceVersion = strconv.Itoa(look)
				return []ciliumv2.CiliumNode{cn}
			},
			p: Patience{WatchFor: 6 * time.Minute}, looks: 74, took: 365 * time.Second,
			want: []string{"ForeignPoolEntry a", "StaleRelease a", "CiliumNodeWithoutNode a"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{nodes: test.nodes}
				test.p.Again = 5 * time.Second
				began := time.Now()
				report, err := auditCluster(t.Context(), &clusterread.Reader{Client: s, AgentSelector: labels.Everything()}, settings(), test.p)
				if err != nil {
					t.Fatal(err)
				}
				if report.Looks != test.looks || s.look != test.looks || time.Since(began) != test.took {
					t.Errorf("%d looks (%d seen) in %s, want %d in %s", report.Looks, s.look, time.Since(began), test.looks, test.took)
				}
				if diff := cmp.Diff(test.want, reasons(report)); diff != "" {
					t.Errorf("findings (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestLookFails(t *testing.T) {
	s := &server{err: errors.New("no way")}
	if _, err := auditCluster(t.Context(), &clusterread.Reader{Client: s, AgentSelector: labels.Everything()}, settings(), Patience{}); !errors.Is(err, s.err) {
		t.Errorf("error %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &server{nodes: func(int) []ciliumv2.CiliumNode { return []ciliumv2.CiliumNode{node("a", "10.0.0.1")} }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := auditCluster(ctx, &clusterread.Reader{Client: s, AgentSelector: labels.Everything()}, settings(), Patience{Again: time.Hour}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}
