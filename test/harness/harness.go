// Package harness is shared by the suites: waiting for a condition, the operator's program, and a
// test's cluster (Bed) with its nodes and pods.
package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Patience bounds every wait of a test; a test never sleeps through it.
const Patience = 90 * time.Second

// Until calls holds until it returns nil. Where ctx ends first, the error has the cause and the
// last answer of holds.
func Until(ctx context.Context, every time.Duration, holds func(context.Context) error) error {
	return poll(ctx, func(time.Duration) time.Duration { return every }, holds)
}

// slowest is the longest pause of Soon. Conditions that a test waits for may hold for as little as
// a second.
const slowest = 100 * time.Millisecond

// Soon is Until for conditions that mostly take milliseconds and sometimes seconds. It
// pauses for first, and later for a tenth of the time that has passed: most of the load on
// the API server would be polling otherwise.
func Soon(ctx context.Context, first time.Duration, holds func(context.Context) error) error {
	return poll(ctx, func(passed time.Duration) time.Duration { return max(first, min(slowest, passed/10)) }, holds)
}

// poll pauses between calls of holds for as long as pause says after the time that has
// passed.
func poll(ctx context.Context, pause func(passed time.Duration) time.Duration, holds func(context.Context) error) error {
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last error
	for {
		err := holds(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		timer.Reset(pause(time.Since(began)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}

// Sleep waits; it fails where ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Must fails the test where there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually fails the test unless holds returns nil within Patience.
func Eventually(t testing.TB, what string, holds func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), Patience, fmt.Errorf("not within %s", Patience))
	defer cancel()
	if err := Soon(ctx, 20*time.Millisecond, func(context.Context) error { return holds() }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

var (
	namesMu sync.Mutex
	names   = map[string]int{}
)

// UniqueName is the test's name as one of an object. A test that runs again in the same
// process, as go test -count has it, gets another.
func UniqueName(t testing.TB) string {
	name := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	namesMu.Lock()
	defer namesMu.Unlock()
	if names[name]++; names[name] > 1 {
		return fmt.Sprintf("%s-%d", name, names[name])
	}
	return name
}

// Root is the folder of the module that the process runs in, or of the one around it
// where that is a test's.
func Root() string {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if mod, _ := os.ReadFile(filepath.Join(dir, "go.mod")); strings.HasPrefix(string(mod), "module "+module+"\n") {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	panic("run it in the source tree")
}

const module = "github.com/cilium-pool/cilium-pool-operator"

// Program builds a program of cmd into .cache/test, once for all suites, and
// returns its path.
func Program(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(Root(), ".cache", "test", name)
	if err := buildOnce(name, path); err != nil {
		t.Fatal(err)
	}
	return path
}

var built sync.Map // name to func() error

func buildOnce(name, path string) error {
	once, _ := built.LoadOrStore(name, sync.OnceValue(func() error { return build(name, path) }))
	return once.(func() error)()
}

// build links a program unless it is up to date. A lock keeps the suites, which
// run at the same time, from writing it together.
func build(name, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	lock, err := os.Create(path + ".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./cmd/"+name) // as make builds it
	cmd.Dir, cmd.Env = Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return nil
}

// Wipe deletes all objects of the kinds of these lists, with any finalizers, but the API server's
// own Service. It reads metadata only, as their types may not hold a test's writes.
func Wipe(ctx context.Context, c client.Client, lists ...client.ObjectList) error {
	for _, of := range lists {
		kind, err := c.GroupVersionKindFor(of)
		if err != nil {
			return err
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := c.List(ctx, list); err != nil {
			return err
		}
		for i := range list.Items {
			item := &list.Items[i]
			item.SetGroupVersionKind(kind.GroupVersion().WithKind(strings.TrimSuffix(kind.Kind, "List")))
			if item.Kind == "Service" && item.Name == "kubernetes" {
				continue
			}
			if err := Remove(ctx, c, item); err != nil {
				return err
			}
		}
	}
	return nil
}

// Remove deletes an object, with any finalizers.
func Remove(ctx context.Context, c client.Client, o client.Object) error {
	if len(o.GetFinalizers()) > 0 {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		if err := c.Patch(ctx, o, patch); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return client.IgnoreNotFound(c.Delete(ctx, o, client.GracePeriodSeconds(0)))
}
