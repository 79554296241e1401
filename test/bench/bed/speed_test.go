package bed

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

func TestSpeedometerWorks(t *testing.T) {
	if !json.Valid(workText()) {
		t.Error("the text is not valid, so that parsing ends early")
	}
}

func TestSpeedometerTakesTheMeanOfAPeriod(t *testing.T) {
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	s := &Speedometer{laps: []lap{{at(0), 50}, {at(1), 10}, {at(2), 20}, {at(3), 30}, {at(4), 90}}}
	for _, tt := range []struct {
		name     string
		from, to int
		want     time.Duration
	}{
		{"several", 1, 3, 20},
		{"one", 4, 4, 90},
		{"none", 5, 9, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := s.Between(at(tt.from), at(tt.to))
			if err != nil || got != tt.want {
				t.Errorf("%v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func TestSpeedometerMeasures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		defer cancel()
		begin := time.Now()
		s := StartSpeedometer()
		defer s.Stop()
		harness.Must(t, harness.Until(ctx, lapEvery, func(context.Context) error {
			mean, err := s.Between(begin, time.Now())
			if err == nil && mean <= 0 {
				err = errors.New("nothing has been measured")
			}
			return err
		}))
	})
}
