package plugin

import (
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

// wakes NODE AFTER SILENT makes the agent of a node in crd mode become Ready, in the
// background, AFTER it was first asked, and answer after it was silent for SILENT more.
func (w *world) cmdWakes(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, "wakes NODE AFTER SILENT")
	after, err := time.ParseDuration(args[1])
	ts.Check(err)
	silent, err := time.ParseDuration(args[2])
	ts.Check(err)
	inBackground(ts, func(sleep func(time.Duration) bool) error {
		for !w.asked(args[0]) {
			if !sleep(20 * time.Millisecond) {
				return nil
			}
		}
		if !sleep(after) {
			return nil
		}
		err := w.ready(args[0])
		for more := sleep(silent); more && err == nil; more = sleep(50 * time.Millisecond) {
			w.answerOnce(args[0])
		}
		return err
	})
}

// inBackground calls do until the script ends, when sleep reports false.
func inBackground(ts *testscript.TestScript, do func(sleep func(time.Duration) bool) error) {
	stop, done := make(chan struct{}), make(chan error, 1)
	ts.Defer(func() { close(stop); ts.Check(<-done) })
	go func() {
		done <- do(func(d time.Duration) bool {
			select {
			case <-stop:
				return false
			case <-time.After(d):
				return true
			}
		})
	}()
}

// asked reports whether an agent has a mark to answer.
func (w *world) asked(node string) bool {
	cn := &ciliumv2.CiliumNode{}
	if w.client.Get(w.ctx, types.NamespacedName{Name: node}, cn) != nil {
		return false
	}
	for _, status := range cn.Status.IPAM.ReleaseIPs {
		if string(status) == string(expand.Marked) {
			return true
		}
	}
	return false
}

// ready makes the agent of a node Ready as of now.
func (w *world) ready(node string) error {
	pod := &corev1.Pod{}
	if err := w.client.Get(w.ctx, types.NamespacedName{Namespace: "kube-system", Name: "cilium-" + node}, pod); err != nil {
		return err
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	return w.client.Status().Update(w.ctx, pod)
}

// version remembers the version of a node's CiliumNode; ! version fails if that has not
// changed, as writes based on the remembered version would then succeed.
func (w *world) cmdVersion(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, false, args, 1, "[!] version NODE")
	cn := &ciliumv2.CiliumNode{}
	ts.Check(w.client.Get(w.ctx, types.NamespacedName{Name: args[0]}, cn))
	key := "VERSION_" + args[0]
	if !neg {
		ts.Setenv(key, cn.ResourceVersion)
	} else if ts.Getenv(key) == cn.ResourceVersion {
		ts.Fatalf("the CiliumNode %s has not changed", args[0])
	}
}
