//go:build linux

package main

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestNotRead(t *testing.T) {
	pod := func(name, uid string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)}}
	}
	bound := []corev1.Pod{pod("a", "1"), pod("b", "2"), pod("c", "3")}
	// Same name, but the pod's predecessor.
	read := []corev1.Pod{pod("a", "1"), pod("b", "0")}
	if got, want := notRead(bound, read), []string{"default/b", "default/c"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := notRead(bound, bound); got != nil {
		t.Errorf("all are read, but %v", got)
	}
}
