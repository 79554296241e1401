package check

import (
	"fmt"
	"io"
	"os"
	"time"
)

// Progress prints to a terminal the number of objects read, if reading takes long.
type Progress struct {
	to      io.Writer // nil: not a terminal
	begun   time.Time
	printed bool
}

// NewProgress returns a silent Progress if to is not a terminal.
func NewProgress(to io.Writer) *Progress {
	p := &Progress{begun: time.Now()}
	if f, ok := to.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.to = to
		}
	}
	return p
}

// Read prints the number of objects of a kind that have been read.
func (p *Progress) Read(kind string, n int) {
	if p.to != nil && time.Since(p.begun) > 2*time.Second {
		p.printed = true
		fmt.Fprintf(p.to, "\r\033[Kreading %s: %d", kind, n)
	}
}

// Clear erases the progress line.
func (p *Progress) Clear() {
	if p.printed {
		fmt.Fprint(p.to, "\r\033[K")
	}
}
