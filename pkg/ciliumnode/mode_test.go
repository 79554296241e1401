package ciliumnode

import "testing"

func TestParseMode(t *testing.T) {
	for _, want := range Modes() {
		if got, err := ParseMode(string(want)); got != want || err != nil {
			t.Errorf("%s is read as %q, %v", want, got, err)
		}
	}
	for _, name := range []string{"", "cluster-pool"} {
		if _, err := ParseMode(name); err == nil || err.Error() != "must be one of crd, multi-pool, kubernetes, delegated-plugin" {
			t.Errorf("%q: %v", name, err)
		}
	}
}
