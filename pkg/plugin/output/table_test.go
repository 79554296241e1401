package output

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// With -w a row is printed again if more than its ages has changed.
func TestChangedRows(t *testing.T) {
	columns := Columns("Block", "Phase", "Age")
	was := Table{Columns: columns, Cells: [][]any{{"a", "InService", "1m"}, {"b", "Draining 5s", "1m"}, {"gone", "InService", "1m"}}}
	is := Table{Columns: columns, Cells: [][]any{{"a", "Draining 1s", "2m"}, {"b", "Draining 7s", "2m"}, {"new", "InService", "1s"}}}
	want := [][]any{{"a", "Draining 1s", "2m"}, {"new", "InService", "1s"}}
	if diff := cmp.Diff(want, is.without(was.lines()).Cells); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
