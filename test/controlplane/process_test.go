package controlplane

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestStopKillsWhatIgnoresIt(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	script := "#!/bin/sh\ntrap '' TERM\ntouch ready\nexec sleep 600\n"
	if err := os.WriteFile(filepath.Join(bin, "deaf"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{dir: dir, opts: Options{BinDir: bin, Log: io.Discard}}
	p, err := c.startProcess("deaf", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	ready := func(context.Context) error {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err
	}
	if err := p.poll(t.Context(), ready); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if p.running() {
		t.Error("it still runs")
	}
}
