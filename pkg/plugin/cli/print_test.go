package cli

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func blocks(rows ...[]any) Table {
	return TableOf("blocks", rows, func(r *[]any) []any { return *r }, "Block", "Phase", "Age")
}

// With -w the table comes first, then the rows that changed, until the wait is interrupted.
func TestListWatches(t *testing.T) {
	tables := []Table{
		blocks([]any{"a", "InService", "1m"}, []any{"b", "InService", "1m"}),
		blocks([]any{"a", "InService", "2m"}, []any{"b", "InService", "2m"}),
		blocks([]any{"a", "Draining", "3m"}, []any{"b", "InService", "3m"}),
	}
	reads := 0
	var out, errOut bytes.Buffer
	e := NewEnv(genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}, "", &Place{Sleep: func(_ context.Context, d time.Duration) error {
		if d != watchEvery {
			t.Errorf("waits for %s, want %s", d, watchEvery)
		}
		if reads == len(tables) {
			return context.Canceled
		}
		return nil
	}})
	read := func() (any, Table, error) {
		reads++
		return nil, tables[reads-1], nil
	}
	if err := e.list(t.Context(), &Flags{watch: true}, read); err != nil {
		t.Fatal(err)
	}
	want := "BLOCK   PHASE       AGE\na       InService   1m\nb       InService   1m\na       Draining    3m\n"
	if diff := cmp.Diff(want, out.String()); diff != "" || errOut.Len() > 0 {
		t.Errorf("(-want +got):\n%s%s", diff, errOut.String())
	}
}

// If a list cannot be read again, the command ends.
func TestListWatchFails(t *testing.T) {
	gone, reads := errors.New("connection refused"), 0
	read := func() (any, Table, error) {
		if reads++; reads > 1 {
			return nil, Table{}, gone
		}
		return nil, blocks([]any{"a", "", ""}), nil
	}
	e := NewEnv(genericiooptions.NewTestIOStreamsDiscard(), "", &Place{Sleep: func(context.Context, time.Duration) error { return nil }})
	if err := e.list(t.Context(), &Flags{watch: true}, read); !errors.Is(err, gone) {
		t.Errorf("ends with %v, want %v", err, gone)
	}
}

// With -w a row is printed again if more than its ages has changed.
func TestChangedRows(t *testing.T) {
	was := blocks([]any{"a", "InService", "1m"}, []any{"b", "Draining 5s", "1m"}, []any{"gone", "InService", "1m"})
	is := blocks([]any{"a", "Draining 1s", "2m"}, []any{"b", "Draining 7s", "2m"}, []any{"new", "InService", "1s"})
	want := [][]any{{"a", "Draining 1s", "2m"}, {"new", "InService", "1s"}}
	if diff := cmp.Diff(want, is.without(was.lines()).cells); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
