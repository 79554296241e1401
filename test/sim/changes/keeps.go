package main

import (
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cilium-pool/cilium-pool-operator/test/sim/changes/schema"
)

// keeps returns the field of a spec because of which nodes keep what they received under
// another spec; "": none. docs/reference/api.md describes each.
func (s *state) keeps(spec spec) string {
	if _, there := spec["ipv6"]; there && !s.dualStack {
		return "ipv6" // a block that was there before the agent, which does not run it
	}
	return keeps(spec)
}

func keeps(s spec) string {
	example := schema.PoolExample()
	for _, field := range [][]string{
		{"paused"},                      // nothing changes
		{"nodeSelector"},                // a node that is no longer selected keeps its blocks
		{"ciliumPoolName"},              // the same
		{"reserved"},                    // a block stays that a node holds
		{"reclaim", "mode"},             // Never
		{"reclaim", "thresholdPercent"}, // between the two thresholds nothing changes
		{"expand", "thresholdPercent"},
		{"expand", "maxBlocksPerNode"}, // takes no block away
		{"maintenance", "windows"},     // blocks begin to leave when one opens
		{"maintenance", "blocksPerHour"},
	} {
		has, there, _ := unstructured.NestedFieldNoCopy(s, field...)
		as, _, _ := unstructured.NestedFieldNoCopy(example, field...)
		thresholds := field[0] != "paused" && field[len(field)-1] == "thresholdPercent"
		if (there || thresholds) && !reflect.DeepEqual(has, as) {
			return fmt.Sprint(field)
		}
	}
	return keepsLonger(s)
}

// keepsLonger is keeps for fields whose value alone does not decide it.
func keepsLonger(s spec) string {
	idle, _, _ := unstructured.NestedString(s, "reclaim", "idleFor")
	if long, err := time.ParseDuration(idle); err == nil && long > 5*time.Minute {
		return "reclaim.idleFor" // longer than a run waits
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		cidrs, _, _ := unstructured.NestedSlice(s, family, "cidrs")
		for _, c := range cidrs {
			if policy, _, _ := unstructured.NestedString(c.(spec), "allocationPolicy"); policy == "Cordon" {
				return family + ".cidrs[].allocationPolicy"
			}
		}
	}
	return ""
}
