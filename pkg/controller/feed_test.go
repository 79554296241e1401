package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// A watch that breaks tells of an object that was deleted and made again under
// its name as of one that has changed.
func TestHandleTellsOfAnObjectReplacedUnderItsName(t *testing.T) {
	var told []string
	h := handle(
		func(p *corev1.Pod) { told = append(told, "there "+string(p.UID)) },
		func(p *corev1.Pod) { told = append(told, "gone "+string(p.UID)) },
	)
	h.OnAdd(pod("a", "1", "n"), true)
	h.OnUpdate(pod("a", "1", "n"), pod("a", "1", "n"))
	h.OnUpdate(pod("a", "1", "n"), pod("a", "2", "m"))
	h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "default/a", Obj: pod("a", "2", "m")})
	h.OnDelete("nonsense")
	want := []string{"there 1", "there 1", "gone 1", "there 2", "gone 2"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}
