package ciliumconfig

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func native(more ...string) map[string]string {
	data := map[string]string{
		"ipam": "crd", "routing-mode": "native", "enable-ipv4-masquerade": "true", "enable-ipv6-masquerade": "true",
		"ipv4-native-routing-cidr": "10.0.0.0/16", "ipv6-native-routing-cidr": "fd00::/16",
	}
	for i := 0; i < len(more); i += 2 {
		data[more[i]] = more[i+1]
	}
	return data
}

func TestMasqueraded(t *testing.T) {
	for name, test := range map[string]struct {
		data  map[string]string
		on    map[string]string // a CiliumNodeConfig, if there is one
		every bool              // it selects every node
		agent string            // the configuration of ip-masq-agent, if there is one
		pool  []string
		want  []string
	}{
		"inside":            {data: native(), pool: []string{"10.0.0.0/24", "10.0.5.0/24"}},
		"outside":           {data: native(), pool: []string{"10.0.0.0/24", "10.1.0.0/24"}, want: []string{"10.1.0.0/24: outside Cilium's ipv4-native-routing-cidr, 10.0.0.0/16: "}},
		"around it":         {data: native(), pool: []string{"10.0.0.0/15"}, want: []string{"10.0.0.0/15: "}},
		"host bits":         {data: native("ipv4-native-routing-cidr", "10.1.2.3/16"), pool: []string{"10.1.0.0/24"}},
		"none set":          {data: native("ipv4-native-routing-cidr", ""), pool: []string{"10.0.0.0/24"}, want: []string{"10.0.0.0/24: outside Cilium's ipv4-native-routing-cidr: "}},
		"tunnels":           {data: native("routing-mode", "tunnel"), pool: []string{"10.1.0.0/24"}},
		"no masquerading":   {data: native("enable-ipv4-masquerade", "false"), pool: []string{"10.1.0.0/24"}},
		"many":              {data: native(), pool: []string{"10.1.0.0/24", "10.2.0.0/24", "10.3.0.0/24", "10.4.0.0/24", "10.5.0.0/24", "10.6.0.0/24", "10.7.0.0/24"}, want: []string{"10.1.0.0/24, 10.2.0.0/24, 10.3.0.0/24, 10.4.0.0/24, 10.5.0.0/24, 2 more: "}},
		"on some nodes":     {data: native(), on: map[string]string{"ipv4-native-routing-cidr": "10.2.0.0/16"}, pool: []string{"10.0.0.0/24"}, want: []string{"10.0.0.0/24: outside Cilium's ipv4-native-routing-cidr, 10.2.0.0/16: "}},
		"on every node":     {data: native(), on: map[string]string{"ipv4-native-routing-cidr": "10.2.0.0/16"}, every: true, pool: []string{"10.2.0.0/24"}},
		"other settings":    {data: native(), on: map[string]string{"debug": "true"}, pool: []string{"10.1.0.0/24"}, want: []string{"10.1.0.0/24: outside Cilium's ipv4-native-routing-cidr, 10.0.0.0/16: "}},
		"ip-masq-agent":     {data: native("enable-ip-masq-agent", "true"), agent: `{"nonMasqueradeCIDRs": ["10.1.0.0/16"]}`, pool: []string{"10.0.0.0/24", "10.1.0.0/24"}},
		"not in its list":   {data: native("enable-ip-masq-agent", "true"), agent: "nonMasqueradeCIDRs: [10.1.0.0/16]", pool: []string{"10.2.0.0/24"}, want: []string{"10.2.0.0/24: outside Cilium's ipv4-native-routing-cidr, 10.0.0.0/16, and the nonMasqueradeCIDRs of ip-masq-agent: "}},
		"its defaults":      {data: native("enable-ip-masq-agent", "true"), pool: []string{"10.2.0.0/24", "172.16.0.0/24", "100.64.0.0/24"}},
		"an empty list":     {data: native("enable-ip-masq-agent", "true"), agent: "{}", pool: []string{"10.2.0.0/24"}, want: []string{"10.2.0.0/24: "}},
		"an unreadable one": {data: native("enable-ip-masq-agent", "true"), agent: "nonMasqueradeCIDRs: [10.2.0.0/16, ten]", pool: []string{"10.2.0.0/24"}, want: []string{"10.2.0.0/24: "}},
	} {
		t.Run(name, func(t *testing.T) {
			config := &Config{Data: test.data}
			if test.on != nil {
				config.Overrides = []Override{{Defaults: test.on}}
			}
			if test.every {
				config.Overrides[0].NodeSelector = &metav1.LabelSelector{}
			}
			if test.data["enable-ip-masq-agent"] == "true" {
				config.NonMasquerade = nonMasquerade(test.agent)
			}
			var got []string
			for _, m := range config.Masqueraded(fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, test.pool...))) {
				got = append(got, m.String())
			}
			if len(got) != len(test.want) {
				t.Fatalf("got %q, want %q", got, test.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], test.want[i]) {
					t.Errorf("got %q, want %q", got[i], test.want[i])
				}
			}
		})
	}
	pool := fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.1.0.0/24"))
	for name, config := range map[string]*Config{"not read": nil, "ip-masq-agent not readable": {Data: native("enable-ip-masq-agent", "true")}} {
		if got := config.Masqueraded(pool); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestSetting(t *testing.T) {
	selecting := func(value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"ipam": value}}
	}
	config := &Config{Data: map[string]string{"ipam": "crd"}, Overrides: []Override{
		{Defaults: map[string]string{"ipam": "cluster-pool"}, NodeSelector: selecting("old")},
		{Defaults: map[string]string{"debug": "true"}, NodeSelector: selecting("old")},
		{Defaults: map[string]string{"ipam": "kubernetes"}},
		{Defaults: map[string]string{"ipam": "eni"}, NodeSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Odd"}}}},
	}}
	for label, want := range map[string]string{"old": "cluster-pool", "new": "crd"} {
		if got := config.Mode(map[string]string{"ipam": label}); got != want {
			t.Errorf("a %s node starts in %s mode, want %s", label, got, want)
		}
	}
	plain := &Config{Data: map[string]string{"ipam": "crd"}}
	if got, want := []bool{config.Differs("crd"), plain.Differs("crd"), plain.Differs("multi-pool")}, []bool{true, false, true}; !cmp.Equal(got, want) {
		t.Errorf("differs: %t, want %t", got, want)
	}
}

// Agents in crd mode with a kvstore route to no block of another node.
func TestLosesRoutes(t *testing.T) {
	for name, test := range map[string]struct {
		more map[string]string
		want bool
	}{
		"identities in CRDs":    {map[string]string{"auto-direct-node-routes": "true"}, false},
		"tunnels":               {map[string]string{"kvstore": "etcd", "routing-mode": "tunnel"}, true},
		"tunnels by default":    {map[string]string{"kvstore": "etcd", "routing-mode": ""}, true},
		"direct routes":         {map[string]string{"kvstore": "etcd", "auto-direct-node-routes": "true"}, true},
		"routes of the network": {map[string]string{"kvstore": "etcd"}, false},
	} {
		data := native()
		maps.Copy(data, test.more)
		if got := (&Config{Data: data}).LosesRoutes(); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
