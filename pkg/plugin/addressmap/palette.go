package addressmap

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Meanings of a block's colour: the share of its addresses in use, the node that holds it, or
// its phase.
const (
	ByUtilisation = "utilisation"
	ByNode        = "node"
	ByPhase       = "phase"
)

// nodeNumbers is the number of colours for nodes, which are assigned in turn.
const nodeNumbers = 9

// theme has the colours of a map in CSS notation, for the page and the SVG, by their CSS variables.
// The ramp is utilisation: none, up to a quarter, a half, three quarters, less than all, and all.
// The last one breaks the ramp, because people look for full blocks.
type theme map[string]string

func (t theme) number(name string, colours ...string) theme {
	for i, c := range colours {
		t[fmt.Sprintf("%s%d", name, i)] = c
	}
	return t
}

func (t theme) names() []string { return slices.Sorted(maps.Keys(t)) }

// light has Paul Tol's "muted" colours for nodes (Colour schemes, SRON technical note 09-002, issue
// 3.2, figure 4); the colours of dark were found by a search. People with any colour vision can
// distinguish them (TestColourBlindness).
func light() theme {
	return theme{
		"page": "#f4f6f8", "surface": "#ffffff", "text": "#17202a", "muted": "#55606c", "line": "#d5dce3", "accent": "#0a5cb8",
		"free": "#e9edf1", "reserved": "#c3cbd4", "closed": "#f6e9d8",
		"InService": "#2c7bb3", "Draining": "#e08a00", "CoolingDown": "#d58ab5", "Conflict": "#b3001b",
	}.number("ramp", "#bcd6ea", "#8fbfe0", "#5a9fce", "#2c7bb3", "#125287", "#cb4b0b").
		number("node", "#88ccee", "#cc6677", "#44aa99", "#ddcc77", "#332288", "#999933", "#aa4499", "#117733", "#882255")
}

func dark() theme {
	return theme{
		"page": "#0d1117", "surface": "#151b23", "text": "#e8edf2", "muted": "#9aa7b4", "line": "#2b3541", "accent": "#79b8ff",
		"free": "#222b35", "reserved": "#3d4854", "closed": "#3a2f1d",
		"InService": "#4f9fd4", "Draining": "#f2b138", "CoolingDown": "#f0c4df", "Conflict": "#ff6b6b",
	}.number("ramp", "#2a4d6b", "#2f6a97", "#3f8bc0", "#6cb0de", "#b5dcf5", "#ff9140").
		number("node", "#6d88c9", "#f67084", "#3cabba", "#fde87a", "#85e1fe", "#b28c3c", "#f4aaaa", "#a7c13c", "#eceaf6")
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

// paletteCSS returns the palette of the page: that of the system's theme, unless data-theme
// selects one.
func paletteCSS() string {
	rule := func(selector, scheme string, t theme) string {
		var s strings.Builder
		for _, name := range t.names() {
			fmt.Fprintf(&s, "--%s: %s; ", name, t[name])
		}
		return fmt.Sprintf("%s { color-scheme: %s; %s}\n", selector, scheme, s.String())
	}
	return rule(":root", "light", light()) +
		"@media (prefers-color-scheme: dark) {\n" + rule(":root", "dark", dark()) + "}\n" +
		rule(":root[data-theme=light]", "light", light()) + rule(":root[data-theme=dark]", "dark", dark())
}

// ink returns the colour of text on a background: black or white, whichever is more readable.
func ink(colour string) string {
	var r, g, b int
	if _, err := fmt.Sscanf(colour, "#%02x%02x%02x", &r, &g, &b); err != nil || 299*r+587*g+114*b > 140_000 {
		return "#10161d"
	}
	return "#ffffff"
}
