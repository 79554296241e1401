package addressmap

import (
	"fmt"
	"strings"
)

// By selects the meaning of a block's colour.
type By string

const (
	// ByUtilisation is the share of a block's addresses in use.
	ByUtilisation By = "utilisation"
	// ByNode is who holds it.
	ByNode By = "node"
	// ByPhase is whether it is in service.
	ByPhase By = "phase"
)

// theme are the colours of a map in CSS notation, for the page and the SVG.
type theme struct {
	// Page is the background, Surface that of a pool. Muted is for less important text.
	Page, Surface, Text, Muted, Line, Accent string
	// Free, Reserved and Closed are cells that no node holds.
	Free, Reserved, Closed string
	// Ramp is utilisation: none, up to a quarter, a half, three quarters, less than all, and all.
	// The last one breaks the ramp, because people look for full blocks.
	Ramp [6]string
	// InService, Draining and CoolingDown are phases, Conflict a block's frame.
	InService, Draining, CoolingDown, Conflict string
	// Nodes are assigned to nodes in turn.
	Nodes [9]string
}

// light has Paul Tol's "muted" colours for nodes (Colour schemes, SRON technical note 09-002, issue
// 3.2, figure 4); the colours of dark were found by a search. People with any colour vision can
// distinguish them (TestColourBlindness).
func light() theme {
	return theme{
		Page: "#f4f6f8", Surface: "#ffffff", Text: "#17202a", Muted: "#55606c", Line: "#d5dce3", Accent: "#0a5cb8",
		Free: "#e9edf1", Reserved: "#c3cbd4", Closed: "#f6e9d8",
		Ramp:      [6]string{"#bcd6ea", "#8fbfe0", "#5a9fce", "#2c7bb3", "#125287", "#cb4b0b"},
		InService: "#2c7bb3", Draining: "#e08a00", CoolingDown: "#d58ab5", Conflict: "#b3001b",
		Nodes: [9]string{"#88ccee", "#cc6677", "#44aa99", "#ddcc77", "#332288", "#999933", "#aa4499", "#117733", "#882255"},
	}
}

func dark() theme {
	return theme{
		Page: "#0d1117", Surface: "#151b23", Text: "#e8edf2", Muted: "#9aa7b4", Line: "#2b3541", Accent: "#79b8ff",
		Free: "#222b35", Reserved: "#3d4854", Closed: "#3a2f1d",
		Ramp:      [6]string{"#2a4d6b", "#2f6a97", "#3f8bc0", "#6cb0de", "#b5dcf5", "#ff9140"},
		InService: "#4f9fd4", Draining: "#f2b138", CoolingDown: "#f0c4df", Conflict: "#ff6b6b",
		Nodes: [9]string{"#6d88c9", "#f67084", "#3cabba", "#fde87a", "#85e1fe", "#b28c3c", "#f4aaaa", "#a7c13c", "#eceaf6"},
	}
}

// rampLabels returns the meanings of the ramp's colours.
func rampLabels() [6]string {
	return [6]string{"idle", "to 25%", "to 50%", "to 75%", "below 100%", "full"}
}

// level returns the place of a block on the ramp.
func level(used, addresses int) int {
	switch {
	case used <= 0 || addresses <= 0:
		return 0
	case used >= addresses:
		return 5
	}
	return 1 + (4*used-1)/addresses
}

// names returns the colours with the names of their CSS variables.
func (t theme) names() []named {
	all := []named{
		{"page", t.Page}, {"surface", t.Surface}, {"text", t.Text}, {"muted", t.Muted}, {"line", t.Line},
		{"accent", t.Accent}, {"free", t.Free}, {"reserved", t.Reserved}, {"closed", t.Closed},
		{"InService", t.InService}, {"Draining", t.Draining}, {"CoolingDown", t.CoolingDown}, {"Conflict", t.Conflict},
	}
	for i, c := range t.Ramp {
		all = append(all, named{fmt.Sprintf("ramp%d", i), c})
	}
	for i, c := range t.Nodes {
		all = append(all, named{fmt.Sprintf("node%d", i), c})
	}
	return all
}

type named struct{ name, colour string }

// paletteCSS returns the palette of the page: that of the system's theme, unless data-theme
// selects one.
func paletteCSS() string {
	var s strings.Builder
	s.WriteString(":root { color-scheme: light; " + light().variables() + "}\n")
	s.WriteString("@media (prefers-color-scheme: dark) {\n:root { color-scheme: dark; " + dark().variables() + "}\n}\n")
	s.WriteString(":root[data-theme=light] { color-scheme: light; " + light().variables() + "}\n")
	s.WriteString(":root[data-theme=dark] { color-scheme: dark; " + dark().variables() + "}\n")
	return s.String()
}

func (t theme) variables() string {
	var s strings.Builder
	for _, n := range t.names() {
		fmt.Fprintf(&s, "--%s: %s; ", n.name, n.colour)
	}
	return s.String()
}

// ink returns the colour of text on a background: black or white, whichever is more readable.
func ink(colour string) string {
	var r, g, b int
	if _, err := fmt.Sscanf(colour, "#%02x%02x%02x", &r, &g, &b); err != nil || 299*r+587*g+114*b > 140_000 {
		return "#10161d"
	}
	return "#ffffff"
}
