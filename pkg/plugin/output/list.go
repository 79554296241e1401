package output

import (
	"context"
	"io"
	"time"

	"k8s.io/cli-runtime/pkg/printers"
)

// watchEvery is the interval of -w's reads of the cluster.
const watchEvery = 2 * time.Second

// Listed is the list of a command at one moment.
type Listed struct {
	Rows  any
	Names []string // of the rows, for -o name
	Table Table
}

// PrintList prints the result of read. With -w it continues until sleep fails, as it does when ctx
// ends, and prints the rows that have changed.
func (o *Flags) PrintList(ctx context.Context, w, errOut io.Writer, sleep func(context.Context, time.Duration) error, read func() (Listed, error)) error {
	if o.watch && !o.Readable() {
		return Usagef("--watch goes with tables alone, not with -o %s", o.Format)
	}
	now, err := read()
	if err != nil {
		return err
	}
	o.names = func() []string { return now.Names }
	if !o.watch {
		return o.Print(w, errOut, now.Rows, now.Table)
	}
	aligned := printers.GetNewTabWriter(w) // which remembers how wide columns were
	if err := o.printTable(aligned, errOut, now.Table); err != nil {
		return err
	}
	return o.printChanges(ctx, aligned, errOut, now.Table.lines(), sleep, read)
}

// flusher is the writer that aligns columns.
type flusher interface {
	io.Writer
	Flush() error
}

// printChanges prints the rows that have not been printed yet, until sleep fails.
func (o *Flags) printChanges(ctx context.Context, w flusher, errOut io.Writer, printed map[string]bool, sleep func(context.Context, time.Duration) error, read func() (Listed, error)) error {
	changes := Flags{Format: o.Format, noHeaders: true}
	for {
		if err := w.Flush(); err != nil {
			return err
		}
		if err := sleep(ctx, watchEvery); err != nil {
			return nil //nolint:nilerr // interrupted: that is how it ends
		}
		now, err := read()
		if err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // interrupted, too
			}
			return err
		}
		changed := now.Table.without(printed)
		printed = now.Table.lines()
		if len(changed.Cells) > 0 {
			if err := changes.printTable(w, errOut, changed); err != nil {
				return err
			}
		}
	}
}

// NamesOf returns the names of rows as kubectl writes them with -o name.
func NamesOf[R any](kind string, rows []R, name func(R) string) []string {
	out := make([]string, 0, len(rows))
	for _, r := range rows {
		out = append(out, kind+name(r))
	}
	return out
}
