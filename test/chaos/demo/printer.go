package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Colours, if the output is a terminal.
const (
	plain  = ""
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// printer writes lines with the time since the demo began.
type printer struct {
	mu     sync.Mutex
	w      io.Writer
	colour bool
	begin  time.Time
}

func newPrinter(f *os.File) *printer {
	info, err := f.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &printer{w: f, colour: terminal && os.Getenv("NO_COLOR") == "", begin: time.Now()}
}

func (p *printer) paint(colour, text string) string {
	if !p.colour || colour == plain {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// event prints an event, and its object.
func (p *printer) event(colour, who, format string, args ...any) {
	p.eventAt(time.Now(), colour, who, format, args...)
}

func (p *printer) eventAt(at time.Time, colour, who, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	since := fmt.Sprintf("%6.1fs", at.Sub(p.begin).Seconds())
	fmt.Fprintf(p.w, "%s  %-14s %s\n", p.paint(dim, since), who, p.paint(colour, fmt.Sprintf(format, args...)))
}

// note prints a line of the demo itself.
func (p *printer) note(format string, args ...any) { p.event(dim, "", format, args...) }

// heading prints the heading of a part of the demo.
func (p *printer) heading(title string, lines ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "\n%s\n", p.paint(bold, "── "+title+" "+strings.Repeat("─", max(0, 76-len([]rune(title))))))
	for _, line := range lines {
		fmt.Fprintln(p.w, "   "+line)
	}
}

// Write prints a line that a part of the demo writes as a note.
func (p *printer) Write(line []byte) (int, error) {
	p.note("%s", strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

// text prints lines unchanged.
func (p *printer) text(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, format+"\n", args...)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "s") {
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}
