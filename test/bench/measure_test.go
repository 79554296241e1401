package main

import (
	"slices"
	"strings"
	"testing"
)

// Each round begins with another contender than the round before, if several run in it.
func TestOrder(t *testing.T) {
	tests := map[string]struct {
		rounds []int // the maximum of contenders a, b, c, ...; 0: none
		want   []string
	}{
		"all run":              {[]int{0, 0, 0}, []string{"abc", "bca", "cab", "abc"}},
		"two":                  {[]int{0, 0}, []string{"ab", "ba", "ab"}},
		"one":                  {[]int{0}, []string{"a", "a"}},
		"none":                 {nil, []string{"", ""}},
		"all but two have run": {[]int{0, 0, 1, 2, 2, 1, 1, 1}, []string{"abcdefgh", "bdea", "ab", "ba"}},
		"the first has run":    {[]int{2, 0, 0}, []string{"abc", "bca", "cb", "bc"}},
		"all have run":         {[]int{1, 1}, []string{"ab", ""}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var contenders []contender
			for i, rounds := range test.rounds {
				contenders = append(contenders, contender{name: string(rune('a' + i)), rounds: rounds})
			}
			var got []string
			for round := range test.want {
				names := ""
				for _, c := range order(contenders, round, (&bench{}).skips) {
					names += c.name
				}
				got = append(got, names)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Contenders that -only leaves out do not run.
func TestOrderOfOnly(t *testing.T) {
	got := order([]contender{{name: "a"}, {name: "b"}, {name: "c"}}, 1, (&bench{only: "c;a"}).skips)
	if len(got) != 2 || got[0].name != "c" || got[1].name != "a" {
		t.Errorf("%v run, not c and a", got)
	}
}

// -fsync is refused for what no table would show.
func TestFsyncFlag(t *testing.T) {
	for args, want := range map[string]string{
		"-fsync -measures=cold,react,modes,settings":   "",
		"-fsync -measures=restart -mode=multi-pool":    "",
		"-measures=failover,growth":                    "",
		"-fsync -measures=cold,failover":               "-fsync: no table would show the results of failover with it; choose from -measures=cold,join,restart,storm,reclaim,react,rest,modes,patches,settings",
		"-fsync -measures=pools":                       "-fsync: no table would show the results of pools with it; choose from -measures=cold,join,restart,storm,reclaim,react,rest,modes,patches,settings",
		"-fsync":                                       "-fsync: no table would show the results of failover, growth, sizes with it; choose from -measures=cold,join,restart,storm,reclaim,react,rest,modes,patches,settings",
		"-fsync -measures=cold,storm -mode=multi-pool": "-fsync: no table would show the results of cold with it; choose from -measures=restart,storm,rest,modes",
	} {
		got := ""
		if _, err := newBench("run", append([]string{"-out=" + t.TempDir()}, strings.Fields(args)...)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, not %q", args, got, want)
		}
	}
}
