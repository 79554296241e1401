package plugin

import (
	"slices"
	"strings"
	"testing"
)

func TestPresent(t *testing.T) {
	for was, now := range map[string]string{
		"":                           "",
		"nodes":                      "get nodes",
		"top -o wide":                "status --watch --nodes=20 -o wide",
		"migrate tidy --node n":      "migrate finish --node n",
		"import calico -f x":         "import --from calico -f x",
		"renumber --from a --to b":   "drain --evict a --to b",
		"renumber --to b --from=a":   "drain --evict --to b a",
		"get pools":                  "get pools",
		"whois nodes":                "whois nodes",
		"drain --to b --from-what a": "drain --to b --from-what a",
	} {
		if got := Present(strings.Fields(was)); !slices.Equal(got, strings.Fields(now)) {
			t.Errorf("%q is %q, want %q", was, got, now)
		}
	}
}
