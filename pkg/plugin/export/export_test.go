package export

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
)

func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pods.conf")
	for _, content := range []string{"first", "second"} {
		if err := replaceFile(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != content {
			t.Errorf("the file is %q, want %q", got, content)
		}
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := replaceFile(path, nil); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o640 {
		t.Errorf("the mode is %s, want the 0640 it had", info.Mode())
	}
	onlyFile(t, dir, "pods.conf")
}

// If the new file cannot replace the old one, that stays unchanged, and no other file is left.
func TestReplaceFileFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "pods.conf", "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(filepath.Join(dir, "pods.conf"), []byte("x")); err == nil {
		t.Fatal("a folder was replaced by a file")
	}
	onlyFile(t, dir, "pods.conf")
}

func onlyFile(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("the folder has %v, want %s alone", entries, name)
	}
}

// writes are the writes of a follower, and their times.
type writes struct {
	start time.Time
	log   []string
	fail  int // so many writes fail first
}

func (w *writes) Write(p []byte) (int, error) {
	if w.fail > 0 {
		w.fail--
		return 0, errors.New("gone")
	}
	w.log = append(w.log, time.Since(w.start).String()+" "+string(p))
	return len(p), nil
}

// watched is a cache that is complete.
func watched() *clusterview.Watched {
	w := &clusterview.Watched{Changed: make(chan bool, 1), Synced: make(chan bool, 1)}
	w.Synced <- true
	return w
}

// A change is written at once, further ones at most once per second, and unchanged output is
// not written.
func TestFollowerPaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		out := &writes{start: time.Now()}
		f := &follower{target: &sink{out: out}, every: time.Second, last: []byte("0")}
		f.watched = watched()
		var now atomic.Value
		now.Store("0")
		done := make(chan error)
		go func() {
			done <- f.run(ctx, func() ([]byte, error) { return []byte(now.Load().(string)), nil })
		}()
		for _, next := range []string{"0", "1", "2", "3", "3"} {
			now.Store(next)
			select {
			case f.watched.Changed <- true:
			default:
			}
			synctest.Wait()
			time.Sleep(400 * time.Millisecond)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"400ms 1", "1.4s 3"}, out.log); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

// A program that fails is run again even without a change, and its error is printed.
func TestFollowerTriesAgain(t *testing.T) {
	dir := t.TempDir()
	f := &follower{target: &sink{file: filepath.Join(dir, "none", "pods.conf")}, every: time.Millisecond}
	var printed strings.Builder
	f.errOut = &printed
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f.watched = watched()
		done := make(chan error)
		go func() {
			done <- f.run(ctx, func() ([]byte, error) { return []byte("x"), nil })
		}()
		f.watched.Changed <- true
		synctest.Wait()
		if printed.Len() == 0 {
			t.Error("no error is printed for a folder that is not there")
		}
		if err := os.Mkdir(filepath.Join(dir, "none"), 0o755); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * retryAfter)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if got, err := os.ReadFile(f.target.file); string(got) != "x" {
		t.Errorf("the file is %q (%v) after the second try, want x", got, err)
	}
	if n := strings.Count(printed.String(), "trying again"); n != 1 {
		t.Errorf("printed %d times, want once:\n%s", n, printed.String())
	}
}

func TestFollowerEndsWithItsReader(t *testing.T) {
	f := &follower{target: &sink{out: &writes{fail: 1}}, every: time.Second}
	f.watched = watched()
	err := f.run(t.Context(), func() ([]byte, error) { return []byte("x"), nil })
	if err == nil {
		t.Error("standard output is gone, and it goes on")
	}
}
