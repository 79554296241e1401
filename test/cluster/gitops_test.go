//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const someObjects = `{"kind": "List", "items": [{"kind": "PodIPPool",
	"metadata": {"name": "a", "resourceVersion": "1", "generation": 2, "managedFields": [{}], "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x", "k": "v"}},
	"spec": {"reclaim": {"idleFor": "1m"}}, "status": {"nodes": 1}}]}`

// Of all differences, only those to what is in Git count.
func TestDesired(t *testing.T) {
	before, err := desired(someObjects)
	if err != nil {
		t.Fatal(err)
	}
	for change, differs := range map[string]bool{
		`"nodes": 1=>"nodes": 2`:                         false,
		`"resourceVersion": "1"=>"resourceVersion": "2"`: false,
		`[{}]=>[{"manager": "argocd"}]`:                  false,
		`"x"=>"y"`:                                       false,
		`"1m"=>"1m0s"`:                                   true,
		`"generation": 2=>"generation": 3`:               true,
		`"v"=>"w"`:                                       true,
	} {
		from, to, _ := strings.Cut(change, "=>")
		changed := strings.Replace(someObjects, from, to, 1)
		after, err := desired(changed)
		if err != nil || changed == someObjects {
			t.Fatalf("%s: %v", change, err)
		}
		if diff := cmp.Diff(before, after); (diff != "") != differs {
			t.Errorf("%s: differs %v, want %v: %s", change, !differs, differs, diff)
		}
	}
	if _, err := desired(`{"items": []}`); err == nil {
		t.Error("no objects: no error")
	}
}
