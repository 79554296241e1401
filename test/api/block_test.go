package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBlock(t *testing.T) {
	const (
		misnamed  = "metadata.name must be 10.20.0.32-27: it follows from spec.cidr"
		malformed = "cidr must be a CIDR such as 10.20.0.32/27"
		tooBig    = "cidr must be of prefix length 16 or more in IPv4, 48 or more in IPv6"
	)
	tests := map[string]struct {
		name, cidr, pool, node string // pool and node are beijing and node-1 if empty
		want                   string
	}{
		"IPv4":                 {name: "10.20.0.32-27", cidr: "10.20.0.32/27"},
		"IPv6":                 {name: "fd00-10--40-122", cidr: "fd00:10::40/122"},
		"IPv6 ending in zeros": {name: "fd00-10---122", cidr: "fd00:10::/122"},
		"IPv6 in full":         {name: "2001-db8-1-2-3-4-5-40-122", cidr: "2001:db8:1:2:3:4:5:40/122"},
		"IPv6 leading zeros":   {name: "0--40-122", cidr: "::40/122"},
		"one address":          {name: "10.20.0.33-32", cidr: "10.20.0.33/32"},
		"widest":               {name: "10.20.0.0-16", cidr: "10.20.0.0/16"},
		"widest IPv6":          {name: "fd00---48", cidr: "fd00::/48"},
		"too wide":             {name: "10.20.0.0-15", cidr: "10.20.0.0/15", want: tooBig},
		"too wide, IPv6":       {name: "fd00---47", cidr: "fd00::/47", want: tooBig},
		"another name":         {name: "my-block", cidr: "10.20.0.32/27", want: misnamed},
		"name of another size": {name: "10.20.0.32-28", cidr: "10.20.0.32/27", want: misnamed},
		"name without zero":    {name: "a--40-122", cidr: "::40/122", want: "metadata.name must be 0--40-122"},
		"host bits":            {name: "10.20.0.33-27", cidr: "10.20.0.33/27", want: "cidr must be canonical, with no host bits set: write 10.20.0.32/27"},
		"upper case":           {name: "fd00---122", cidr: "FD00::/122", want: "write fd00::/122"},
		"not the shortest":     {name: "fd00-0---122", cidr: "fd00:0::/122", want: "write fd00::/122"},
		"IPv4-mapped":          {name: "0--ffff-10.20.0.32-123", cidr: "::ffff:10.20.0.32/123", want: "IPv4-mapped IPv6 is refused"},
		"address":              {name: "10.20.0.32", cidr: "10.20.0.32", want: malformed},
		"empty":                {name: "x", cidr: "", want: malformed},
		"pool too long":        {name: "10.20.0.32-27", cidr: "10.20.0.32/27", pool: strings.Repeat("a", 64), want: "spec.poolName: Too long"},
		"pool not a name":      {name: "10.20.0.32-27", cidr: "10.20.0.32/27", pool: "Bei_jing", want: "poolName must be the name of a PodIPPool"},
		"node not a name":      {name: "10.20.0.32-27", cidr: "10.20.0.32/27", node: "node/1", want: "nodeName must be the name of a Node"},
		"node of 253":          {name: "10.20.0.32-27", cidr: "10.20.0.32/27", node: strings.Repeat("a.", 126) + "a"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := blockSpec(tc.cidr, orDefault(tc.pool, "beijing"), orDefault(tc.node, "node-1"))
			o := object(t, "PodIPBlock", tc.name, spec)
			_, err := resource(t, "podipblocks").Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			expect(t, err, tc.want)
		})
	}
}

func TestBlockNeedsAllFields(t *testing.T) {
	for _, field := range []string{"cidr", "poolName", "nodeName"} {
		t.Run(field, func(t *testing.T) {
			o := object(t, "PodIPBlock", "10.20.0.32-27", blockSpec("10.20.0.32/27", "beijing", "node-1"))
			delete(o.Object["spec"].(map[string]any), field)
			_, err := resource(t, "podipblocks").Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			expect(t, err, "spec."+field+": Required value")
		})
	}
}

func TestBlockIsImmutable(t *testing.T) {
	client := resource(t, "podipblocks")
	old := create(t, client, object(t, "PodIPBlock", "10.20.0.32-27", blockSpec("10.20.0.32/27", "beijing", "node-1")))
	for field, value := range map[string]string{"cidr": "10.20.0.64/27", "poolName": "shanghai", "nodeName": "node-2", "nodeUID": "1"} {
		t.Run(field, func(t *testing.T) {
			updated := old.DeepCopy()
			updated.Object["spec"].(map[string]any)[field] = value
			_, err := client.Update(t.Context(), updated, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			expect(t, err, "spec is immutable but for drain: set drain to true, and another block takes its place")
		})
	}
	t.Run("drain and labels may change", func(t *testing.T) {
		updated := old.DeepCopy()
		updated.Object["spec"].(map[string]any)["drain"] = true
		updated.SetLabels(map[string]string{"a": "b"})
		_, err := client.Update(t.Context(), updated, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		expect(t, err, "")
	})
}

func TestBlockFieldSelectors(t *testing.T) {
	client := resource(t, "podipblocks")
	for _, b := range []struct{ name, cidr, pool, node string }{
		{"10.20.0.0-27", "10.20.0.0/27", "beijing", "node-1"},
		{"10.20.0.32-27", "10.20.0.32/27", "beijing", "node-2"},
		{"10.30.0.0-27", "10.30.0.0/27", "shanghai", "node-1"},
	} {
		create(t, client, object(t, "PodIPBlock", b.name, blockSpec(b.cidr, b.pool, b.node)))
	}
	for selector, want := range map[string][]string{
		"spec.nodeName=node-1":                       {"10.20.0.0-27", "10.30.0.0-27"},
		"spec.poolName=beijing":                      {"10.20.0.0-27", "10.20.0.32-27"},
		"spec.poolName=beijing,spec.nodeName=node-1": {"10.20.0.0-27"},
		"spec.nodeName!=node-1":                      {"10.20.0.32-27"},
		"spec.nodeName=node-3":                       nil,
	} {
		t.Run(selector, func(t *testing.T) {
			list, err := client.List(t.Context(), metav1.ListOptions{FieldSelector: selector})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, item := range list.Items {
				got = append(got, item.GetName())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("blocks (-want +got):\n%s", diff)
			}
		})
	}
}

func blockSpec(cidr, pool, node string) string {
	return fmt.Sprintf("{cidr: '%s', poolName: '%s', nodeName: '%s'}", cidr, pool, node)
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
