package list

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// watchHelp names the keys of status --watch at a terminal.
const watchHelp = "q quit  s sort  / filter by node or pool  up, down, PgUp, PgDn scroll  r read now  ? help"

// page is one reading of the cluster; err is why there is none.
type page struct {
	overview *Overview
	at       time.Time
	err      error
}

// sortKeys are the orders of nodes that s steps through.
func sortKeys() []string { return []string{"fullness", "name", "state", "pool"} }

// screen is status --watch at a terminal: the page, with all nodes, scrolled, sorted and filtered.
type screen struct {
	read  func() page
	every time.Duration

	page
	sortBy    int // of sortKeys
	filter    string
	filtering bool // keys go to filter
	help      bool
	top       int // first node shown
	width     int
	height    int
	round     int // of readings
}

// nextRead begins another reading, unless the user has begun one since the round of that number.
type nextRead struct{ round int }

// watchScreen shows the page until the user quits or ctx ends.
func (p *statusPages) watchScreen(ctx context.Context) error {
	model := &screen{every: p.every, read: func() page {
		c, err := p.Read(ctx)
		if err != nil {
			return page{err: err}
		}
		return page{overview: ReadOverview(ctx, p.Env, c, len(c.NodeNames())), at: c.Now}
	}}
	p.ErrOut = io.Discard // the page says it
	_, err := tea.NewProgram(model, tea.WithContext(ctx), tea.WithInput(p.Raw.In), tea.WithOutput(p.Raw.Out)).Run()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // an interrupt ends the watch
	}
	if err == nil && model.overview == nil {
		return model.err
	}
	return err
}

// Init begins the first read.
func (s *screen) Init() tea.Cmd { return s.readNow }

func (s *screen) readNow() tea.Msg { return s.read() }

// Update handles a key, a reading and a change of the terminal's size.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width = msg.Width
		s.height = msg.Height
	case page:
		if msg.err != nil && s.overview == nil {
			s.err = msg.err
			return s, tea.Quit
		}
		if msg.err == nil {
			s.page = msg
		}
		s.err = msg.err // the last page stays while the cluster cannot be read
		s.round++
		round := s.round
		return s, tea.Tick(s.every, func(time.Time) tea.Msg { return nextRead{round} })
	case nextRead:
		if msg.round == s.round {
			return s, s.readNow
		}
	case tea.KeyPressMsg:
		if s.filtering {
			s.typeFilter(msg)
			return s, nil
		}
		return s, s.press(msg.String())
	}
	return s, nil
}

func (s *screen) press(key string) tea.Cmd {
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "s":
		s.sortBy = (s.sortBy + 1) % len(sortKeys())
	case "/":
		s.filtering = true
	case "esc":
		s.filter = ""
		s.help = false
	case "?":
		s.help = !s.help
	case "r":
		s.round++
		return s.readNow
	case "down", "j":
		s.top++
	case "up", "k":
		s.top--
	case "pgdown":
		s.top += s.height / 2
	case "pgup":
		s.top -= s.height / 2
	}
	s.top = min(max(0, s.top), max(0, len(s.rows())-1))
	return nil
}

func (s *screen) typeFilter(key tea.KeyPressMsg) {
	switch key.String() {
	case "enter":
		s.filtering = false
	case "esc", "ctrl+c":
		s.filtering = false
		s.filter = ""
	case "backspace":
		s.filter = s.filter[:max(0, len(s.filter)-1)]
	default:
		s.filter += key.Text
	}
	s.top = 0
}

// rows returns the nodes to show, in order.
func (s *screen) rows() []nodeRow {
	if s.overview == nil {
		return nil
	}
	rows := slices.DeleteFunc(slices.Clone(s.overview.Fullest), func(r nodeRow) bool {
		return !strings.Contains(r.Node, s.filter) && !strings.Contains(r.Pool, s.filter)
	})
	text := map[string]func(nodeRow) string{
		"name":  func(r nodeRow) string { return r.Node },
		"state": func(r nodeRow) string { return r.State },
		"pool":  func(r nodeRow) string { return r.Pool },
	}[sortKeys()[s.sortBy]]
	if text != nil { // else they come by fullness
		slices.SortStableFunc(rows, func(a, b nodeRow) int {
			return cmp.Or(strings.Compare(text(a), text(b)), strings.Compare(a.Node, b.Node))
		})
	}
	return rows
}

// View draws the page. The library leaves out colours that the terminal or NO_COLOR rules out.
func (s *screen) View() tea.View {
	view := tea.NewView(s.content())
	view.AltScreen = true
	return view
}

func (s *screen) content() string {
	if s.overview == nil {
		return "reading the cluster…"
	}
	if s.help {
		return strings.ReplaceAll(watchHelp, "  ", "\n") + "\n"
	}
	var head, foot cli.Text
	wide := &cli.Output{}
	shown := *s.overview
	shown.Fullest = nil
	head.Line("Time      %s", s.at.Format(time.TimeOnly))
	shown.Describe(&head, wide, s.at)
	rows := s.rows()
	foot.Line("")
	if s.err != nil {
		foot.Line("not read again: %v", s.err)
	}
	foot.Line("%s", s.footer(len(rows)))
	var nodes cli.Text
	nodes.Table(wide, nodeTable(rows))
	return s.fit(lines(head.String()), lines(nodes.String()), lines(foot.String()))
}

func (s *screen) footer(n int) string {
	if s.filtering {
		return "filter: " + s.filter + "▏ (Enter keeps it, Esc ends it)"
	}
	by := fmt.Sprintf("%d nodes by %s", n, sortKeys()[s.sortBy])
	if s.filter != "" {
		by += ", with " + s.filter
	}
	return by + ".  " + watchHelp
}

// fit joins the parts of the page so that they fit the terminal: nodes get what the others leave, at least four lines.
func (s *screen) fit(head, nodes, foot []string) string {
	const least = 4
	room := len(head) + len(nodes) + len(foot)
	if s.height > 0 {
		room = s.height
	}
	head = head[:min(len(head), max(0, room-len(foot)-least-1))]
	left := max(0, room-len(head)-len(foot)-1)
	body := nodes[min(len(nodes), 1):]
	body = body[min(s.top, len(body)):]
	body = body[:min(len(body), max(0, left-1))]
	all := slices.Concat(head, []string{""}, nodes[:min(len(nodes), 1)], body, foot)
	for i, line := range all {
		if s.width > 0 {
			line = ansi.Truncate(line, s.width, "…")
		}
		all[i] = paint(line)
	}
	return strings.Join(all, "\n")
}

// paint colours a line by its words: red for what is short or wrong, yellow for what waits, bold for headings.
func paint(line string) string {
	for _, rule := range []struct {
		style ansi.Style
		words []string
	}{
		{ansi.NewStyle().ForegroundColor(ansi.Red), []string{"Short by", "short by", "no operator", "Exhausted", "Invalid", "NoCiliumNode", "NodeGone", "not read again"}},
		{ansi.NewStyle().ForegroundColor(ansi.Yellow), []string{"Paused", "AgentNotReady", "Draining", "PhasingOut", "SelectsNoNode", "Overlapping", "NoPool"}},
		{ansi.NewStyle().Bold(), []string{"NODE ", "POOL ", "Look at:"}},
	} {
		if slices.ContainsFunc(rule.words, func(word string) bool { return strings.Contains(line, word) }) {
			return rule.style.Styled(line)
		}
	}
	return line
}

// lines splits a text, in which agents' and people's escape sequences become text.
func lines(text string) []string {
	return strings.Split(strings.TrimRight(termsafe.Text(text), "\n"), "\n")
}
