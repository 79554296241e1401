//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/budgets"
)

// watchedTimeout is the longest lag of a watch.
const watchedTimeout = time.Minute

// podWatch passes each version of the pods of the namespace default to budgets.
type podWatch struct {
	bed  *bed
	stop context.CancelFunc

	mu      sync.Mutex
	budgets *budgets.Judge
	latest  uint64 // resourceVersion
	err     error  // why it ended
}

// watchPods starts the watch, and returns once the budgets have as many Ready pods as they
// require.
func (b *bed) watchPods(ctx context.Context, judge *budgets.Judge) (*podWatch, error) {
	w := &podWatch{bed: b, budgets: judge}
	watching, stop := context.WithCancel(ctx)
	w.stop = stop
	cmd := exec.CommandContext(watching, filepath.Join(b.options.binDir, "kubectl"), "--kubeconfig", b.cluster.Kubeconfig(),
		"get", "pods", "--namespace=default", "--watch", "--output-watch-events", "--output=json")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		stop()
		return nil, err
	}
	go func() {
		err := w.follow(out)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = fmt.Errorf("the watch of pods ended: %w", errors.Join(err, cmd.Wait()))
	}()
	err = w.await(ctx, "budgets have their pods", judge.Begun)
	if err != nil {
		stop()
	}
	return w, err
}

func (w *podWatch) follow(out io.Reader) error {
	for events := json.NewDecoder(out); ; {
		var event struct {
			Type   string
			Object corev1.Pod
		}
		if err := events.Decode(&event); err != nil {
			return err
		}
		version, err := strconv.ParseUint(event.Object.ResourceVersion, 10, 64)
		if err != nil {
			return fmt.Errorf("%s of pod %q: %w", event.Type, event.Object.Name, err)
		}
		w.mu.Lock()
		w.latest = max(w.latest, version)
		w.budgets.See(&event.Object, event.Type == "DELETED")
		w.mu.Unlock()
	}
}

// await waits until is returns true after a version that the watch has delivered.
func (w *podWatch) await(ctx context.Context, what string, is func() bool) error {
	var ended error
	err := kube.Await(ctx, watchedTimeout, what, func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if ended = w.err; ended == nil && !is() {
			return errors.New("not yet")
		}
		return nil
	})
	return errors.Join(err, ended)
}

// end ends the watch once it has delivered everything written so far, and returns the budgets.
func (w *podWatch) end(ctx context.Context) (*budgets.Judge, error) {
	defer w.stop()
	pods, err := w.bed.pods(ctx, "--selector=app=store")
	if err != nil || len(pods) == 0 {
		return w.budgets, errors.Join(err, errors.New("no pod to mark the end of the watch with"))
	}
	marked, err := w.bed.cluster.Kubectl(ctx, "annotate", "pod", pods[0].Name, "--namespace=default", "--overwrite",
		"watched="+strconv.FormatInt(time.Now().UnixNano(), 10), "--output=jsonpath={.metadata.resourceVersion}")
	if err != nil {
		return w.budgets, err
	}
	version, err := strconv.ParseUint(marked, 10, 64)
	if err != nil {
		return w.budgets, err
	}
	return w.budgets, w.await(ctx, "the watch shows the last pods", func() bool { return w.latest >= version })
}
