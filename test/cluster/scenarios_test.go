//go:build linux

package main

import (
	"slices"
	"testing"
)

func TestChoose(t *testing.T) {
	for list, want := range map[string][]string{
		"ci":              {"install", "scale", "upgrade"},
		"all":             names(),
		"upgrade":         {"upgrade"},
		"upgrade,install": {"install", "upgrade"},
		"variants":        variantNames(),
		"docs":            {"docs-readme", "docs-install", "docs-operations"},
		"docs-install":    {"docs-install"},
	} {
		chosen, err := choose(list)
		if err != nil {
			t.Errorf("%s: %v", list, err)
		}
		var got []string
		for _, s := range chosen {
			got = append(got, s.name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s chose %v, want %v", list, got, want)
		}
	}
	if _, err := choose("install,doc"); err == nil {
		t.Error("a scenario that is not there: no error")
	}
}

func variantNames() []string {
	var out []string
	for _, v := range variants() {
		out = append(out, "variants-"+v.name)
	}
	return out
}
