package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// lazyLogger returns a logger like the operator's that writes to w.
func lazyLogger(w io.Writer) logr.Logger {
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "msg"}), zapcore.AddSync(w), zapcore.InfoLevel)
	return zapr.NewLogger(zap.New(core, lazily))
}

// encoded counts its encodings.
type encoded struct{ times *int }

func (e encoded) String() string { *e.times++; return "value" }

// All fields of a line that is written are encoded, and no others.
func TestFieldsAreEncodedForLines(t *testing.T) {
	var out bytes.Buffer
	times := 0
	base := lazyLogger(&out)
	log := base.WithValues("a", encoded{&times}).WithValues("b", 2)
	log.V(1).Info("hidden")
	if times != 0 || out.Len() != 0 {
		t.Errorf("encoded %d times for no line: %s", times, &out)
	}
	log.Info("first")
	log.WithValues("c", 3).Info("second")
	base.Info("third")
	want := `{"msg":"first","a":"value","b":2}
{"msg":"second","a":"value","b":2,"c":3}
{"msg":"third"}
`
	if out.String() != want || times != 1 {
		t.Errorf("encoded %d times:\n%swant\n%s", times, &out, want)
	}
}

// BenchmarkLogger measures creating the logger of a reconcile that writes no line.
func BenchmarkLogger(b *testing.B) {
	for _, of := range []struct {
		name   string
		option zap.Option
	}{{"zap", zap.WithCaller(false)}, {"lazy", lazily}} {
		b.Run(of.name, func(b *testing.B) {
			core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(io.Discard), zapcore.InfoLevel)
			base := zapr.NewLogger(zap.New(core, of.option)).WithValues("controller", "node")
			b.ReportAllocs()
			for b.Loop() {
				log := base.WithValues("object", klog.KRef("", "node-1"), "namespace", "", "name", "node-1").WithValues("reconcileID", "5b4a3f0c-0000-4000-8000-000000000000")
				log.V(1).Info("published")
			}
		})
	}
}
