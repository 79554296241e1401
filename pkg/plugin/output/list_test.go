package output

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// With -w the table comes first, then the rows that changed, until the wait is interrupted.
func TestPrintListWatches(t *testing.T) {
	columns := Columns("Block", "Phase")
	tables := []Table{
		{Columns: columns, Cells: [][]any{{"a", "InService"}, {"b", "InService"}}},
		{Columns: columns, Cells: [][]any{{"a", "InService"}, {"b", "InService"}}},
		{Columns: columns, Cells: [][]any{{"a", "Draining"}, {"b", "InService"}}},
	}
	reads := 0
	read := func() (Listed, error) {
		reads++
		return Listed{Table: tables[reads-1]}, nil
	}
	interrupted := func(_ context.Context, d time.Duration) error {
		if d != watchEvery {
			t.Errorf("waits for %s, want %s", d, watchEvery)
		}
		if reads == len(tables) {
			return context.Canceled
		}
		return nil
	}
	var out, errOut bytes.Buffer
	if err := (&Flags{watch: true}).PrintList(t.Context(), &out, &errOut, interrupted, read); err != nil {
		t.Fatal(err)
	}
	want := "BLOCK   PHASE\na       InService\nb       InService\na       Draining\n"
	if diff := cmp.Diff(want, out.String()); diff != "" || errOut.Len() > 0 {
		t.Errorf("(-want +got):\n%s%s", diff, errOut.String())
	}
}

// If a list cannot be read again, the command ends.
func TestPrintListWatchFails(t *testing.T) {
	gone, reads := errors.New("connection refused"), 0
	read := func() (Listed, error) {
		if reads++; reads > 1 {
			return Listed{}, gone
		}
		return Listed{Table: Table{Columns: Columns("Block"), Cells: [][]any{{"a"}}}}, nil
	}
	at := func(context.Context, time.Duration) error { return nil }
	if err := (&Flags{watch: true}).PrintList(t.Context(), &bytes.Buffer{}, &bytes.Buffer{}, at, read); !errors.Is(err, gone) {
		t.Errorf("ends with %v, want %v", err, gone)
	}
}
