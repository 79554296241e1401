package demo

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEvenly(t *testing.T) {
	tests := map[string]struct {
		of, count int
		want      []int
	}{
		"none":  {of: 10, count: 0},
		"some":  {of: 10, count: 3, want: []int{0, 3, 6}},
		"all":   {of: 3, count: 3, want: []int{0, 1, 2}},
		"empty": {of: 0, count: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []int
			kept := evenly(test.of, test.count)
			for i := range test.of {
				if kept[i] {
					got = append(got, i)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlural(t *testing.T) {
	for want, got := range map[string]string{
		"1 address": plural(1, "address"), "2 addresses": plural(2, "address"), "0 blocks": plural(0, "block"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
