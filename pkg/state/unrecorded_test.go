package state

import "testing"

// Until the pools that lack their record are known, any pool may lack it.
func TestUnrecorded(t *testing.T) {
	var none *Unrecorded
	if none.Has("p") {
		t.Error("a pool lacks its record where there was no first installation")
	}
	u := &Unrecorded{}
	if !u.Has("p") {
		t.Error("a pool is recorded before that is known")
	}
	u.Set(map[string]bool{"p": true})
	if !u.Has("p") || u.Has("q") {
		t.Errorf("p lacks its record: %t, q: %t; p alone does", u.Has("p"), u.Has("q"))
	}
	u.Set(nil)
	if u.Has("p") {
		t.Error("p lacks its record after it was written")
	}
}
