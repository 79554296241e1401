package list

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
)

func fullPage() page {
	return page{at: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), overview: &Overview{
		Operator:  clusterread.Leader{Name: "op-0"},
		Attention: []string{"node c is short by 2 addresses: \x1b[31mno"},
		Fullest: []nodeRow{
			{Node: "c", Pool: "blue", State: "Short by 2"}, {Node: "a", Pool: "main", State: "OK"}, {Node: "b", Pool: "main", State: "Draining"},
		},
	}}
}

// shownNodes returns the first words of the lines with nodes, in the order of the screen.
func shownNodes(s *screen) string {
	var names []string
	for line := range strings.Lines(ansi.Strip(s.content())) {
		if fields := strings.Fields(line); len(fields) > 3 && slices.Contains([]string{"a", "b", "c"}, fields[0]) {
			names = append(names, fields[0])
		}
	}
	return strings.Join(names, " ")
}

func press(s *screen, keys ...string) (quits bool) {
	for _, key := range keys {
		msg := tea.KeyPressMsg{Text: key, Code: []rune(key)[0]}
		switch key {
		case "esc":
			msg = tea.KeyPressMsg{Code: tea.KeyEscape}
		case "enter":
			msg = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "down":
			msg = tea.KeyPressMsg{Code: tea.KeyDown}
		}
		_, cmd := s.Update(msg)
		if cmd != nil {
			if _, ok := cmd().(tea.QuitMsg); ok {
				quits = true
			}
		}
	}
	return quits
}

// Keys sort, filter, scroll and quit.
func TestWatchKeys(t *testing.T) {
	for name, test := range map[string]struct {
		keys   []string
		height int
		want   string
		quits  bool
	}{
		"at first, by fullness":      {nil, 40, "c a b", false},
		"by name":                    {[]string{"s"}, 40, "a b c", false},
		"by state":                   {[]string{"s", "s"}, 40, "b a c", false},
		"by fullness again":          {[]string{"s", "s", "s", "s"}, 40, "c a b", false},
		"filtered by pool":           {[]string{"/", "m", "a", "i", "enter"}, 40, "a b", false},
		"q is a letter of a filter":  {[]string{"/", "q"}, 40, "", false},
		"the filter is taken back":   {[]string{"/", "q", "esc"}, 40, "c a b", false},
		"scrolled":                   {[]string{"down"}, 40, "a b", false},
		"scrolled to the end":        {[]string{"down", "down", "down", "down"}, 40, "b", false},
		"a low terminal":             {nil, 9, "c a b", false},
		"a lower one":                {nil, 6, "c a", false},
		"q quits":                    {[]string{"q"}, 40, "c a b", true},
		"help shows keys, no nodes":  {[]string{"?"}, 40, "", false},
		"help is closed by the same": {[]string{"?", "?"}, 40, "c a b", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &screen{every: time.Second}
			s.Update(tea.WindowSizeMsg{Width: 100, Height: test.height})
			s.Update(fullPage())
			quits := press(s, test.keys...)
			if got := shownNodes(s); got != test.want || quits != test.quits {
				t.Errorf("nodes %q, quits %t, want %q, %t:\n%s", got, quits, test.want, test.quits, s.content())
			}
			if n := strings.Count(s.content(), "\n") + 1; n > test.height {
				t.Errorf("%d lines on a terminal of %d", n, test.height)
			}
		})
	}
}

// The last page stays while the cluster cannot be read; without one the command ends.
func TestWatchOutlastsErrors(t *testing.T) {
	s := &screen{}
	s.Update(fullPage())
	s.Update(page{err: errors.New("no way")})
	if text := s.content(); !strings.Contains(text, "op-0 leads") || !strings.Contains(text, "not read again: no way") {
		t.Errorf("the page after an error:\n%s", text)
	}
	if _, cmd := (&screen{}).Update(page{err: errors.New("no way")}); cmd == nil || cmd() != tea.Quit() {
		t.Error("it goes on without a page")
	}
}

// terminal collects output, and types a key once it shows a text.
type terminal struct {
	mu   sync.Mutex
	text bytes.Buffer
	wait string
	keys io.WriteCloser
}

func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p)
	if t.wait != "" && strings.Contains(t.text.String(), t.wait) {
		t.wait = ""
		go func() { _, _ = io.WriteString(t.keys, "q") }()
	}
	return len(p), nil
}

// Colours are on, unless NO_COLOR is set; agents' escape sequences are text in any case.
func TestWatchColours(t *testing.T) {
	const red = "\x1b[31m"
	for setting, coloured := range map[string]bool{"COLORTERM=": true, "NO_COLOR=1": false} {
		t.Run(setting, func(t *testing.T) {
			keyboard, keys := io.Pipe()
			shown := &terminal{wait: "Look at", keys: keys}
			model := &screen{every: time.Hour, read: fullPage}
			program := tea.NewProgram(model, tea.WithContext(t.Context()), tea.WithInput(keyboard), tea.WithOutput(shown), tea.WithWindowSize(100, 40),
				tea.WithEnvironment([]string{"TERM=xterm-256color", "TTY_FORCE=1", "CLICOLOR_FORCE=1", setting}))
			if _, err := program.Run(); err != nil {
				t.Fatal(err)
			}
			text := shown.text.String()
			if strings.Contains(text, red) != coloured || strings.Contains(text, red+"no") || !strings.Contains(text, `\u001b[31mno`) {
				t.Errorf("coloured: %t; got:\n%q", coloured, text)
			}
		})
	}
}
