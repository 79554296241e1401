package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTriggerKeepsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start := time.Now()
		var runs []time.Duration
		trig := newTrigger(15 * time.Second)
		go trig.run(ctx, func() { runs = append(runs, time.Since(start)) })

		trig.request("first")
		synctest.Wait()
		time.Sleep(time.Second)
		trig.request("second")
		synctest.Wait()
		// Asked while it waits: one more run after this one.
		trig.request("third")
		trig.request("fourth")
		time.Sleep(time.Minute)
		trig.request("fifth")
		synctest.Wait()

		want := []time.Duration{0, 15 * time.Second, 30 * time.Second, 61 * time.Second}
		if diff := cmp.Diff(want, runs); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
	})
}
