package plugin

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// watchEvery is how often -w reads the cluster.
const watchEvery = 2 * time.Second

// listed is what a command lists at one moment.
type listed struct {
	rows  any
	names []string // of the rows, for -o name
	table table
}

// addListFlags adds the flags of commands that list objects: -o, with names, and -w.
func (o *output) addListFlags(cmd *cobra.Command) {
	o.addFlags(cmd)
	o.names = func() []string { return nil }
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "after the list, print each row that changes, until interrupted; for tables")
}

// list prints what read returns; with -w it reads again and again, and prints what
// has changed.
func (e *env) list(ctx context.Context, o *output, read func() (listed, error)) error {
	return o.printList(ctx, e.Out, e.ErrOut, e.sleep, read)
}

// printList prints what read returns; with -w it goes on until sleep fails, as it does
// once ctx ends, and prints the rows that have changed.
func (o *output) printList(ctx context.Context, w, errOut io.Writer, sleep func(context.Context, time.Duration) error, read func() (listed, error)) error {
	if o.watch && !o.readable() {
		return usagef("--watch goes with tables alone, not with -o %s", o.format)
	}
	now, err := read()
	if err != nil {
		return err
	}
	o.names = func() []string { return now.names }
	if err := o.print(w, errOut, now.rows, now.table); err != nil || !o.watch {
		return err
	}
	printed := now.table.lines()
	changes := output{format: o.format, noHeaders: true}
	for {
		if err := sleep(ctx, watchEvery); err != nil {
			return nil //nolint:nilerr // interrupted: that is how it ends
		}
		if now, err = read(); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // interrupted, too
			}
			return err
		}
		changed := now.table.without(printed)
		printed = now.table.lines()
		if len(changed.cells) > 0 {
			if err := changes.print(w, errOut, nil, changed); err != nil {
				return err
			}
		}
	}
}

// lines are the rows as text.
func (t table) lines() map[string]bool {
	lines := map[string]bool{}
	for _, cells := range t.cells {
		lines[t.line(cells)] = true
	}
	return lines
}

// line is a row without ages, which always change.
func (t table) line(cells []any) string {
	line := ""
	for i, cell := range cells {
		words := fmt.Sprint(cell)
		switch t.columns[i].name {
		case "Age":
			continue
		case "Phase": // and for how long
			words, _, _ = strings.Cut(words, " ")
		}
		line += words + "\x00"
	}
	return line
}

// without is the table without rows that are among lines.
func (t table) without(lines map[string]bool) table {
	changed := t
	changed.cells = nil
	for _, cells := range t.cells {
		if !lines[t.line(cells)] {
			changed.cells = append(changed.cells, cells)
		}
	}
	return changed
}
