package config

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/zapr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// The fields of a line that the operator logs as JSON are those that tools read.
func TestHolderLinesReadBack(t *testing.T) {
	block := HolderLine{
		Block: netip.MustParsePrefix("fd00::10/124"), Node: "n", Pool: "p", Reason: "Returned", Owner: "default/web-0",
		Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Until: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
	}
	claimed := block
	claimed.Since, claimed.Until = time.Time{}, time.Time{}
	returned := block
	returned.Until = time.Time{}
	pod := HolderLine{Address: netip.MustParseAddr("10.0.0.1"), Owner: "default/web-0"}
	for message, want := range map[string]HolderLine{BlockClaimed: claimed, BlockReturned: returned, BlockFreed: block, AddressKept: pod, AddressReleased: pod} {
		t.Run(message, func(t *testing.T) {
			var out bytes.Buffer
			encoder := zap.NewProductionEncoderConfig()
			encoder.EncodeTime = zapcore.RFC3339NanoTimeEncoder // as the operator's
			logger := zapr.NewLogger(zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(encoder), zapcore.AddSync(&out), zapcore.InfoLevel)))
			logged := block
			if want.Address.IsValid() {
				logged = pod
			}
			logged.Message = message
			logger.Info(message, logged.KeysAndValues()...)
			want.Message = message
			var got HolderLine
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if got.Time.IsZero() {
				t.Error("it has no time")
			}
			got.Time = time.Time{}
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", &out, diff)
			}
		})
	}
}
