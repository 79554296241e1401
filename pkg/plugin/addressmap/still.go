package addressmap

import (
	"fmt"
	"html/template"
	"regexp"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
)

// Still is a map for a page of one file, which needs no server: the page shows it as it is now.
type Still struct {
	// Map is without the users of addresses.
	Map *Map
	// Style has the colours and shapes of the live map.
	Style template.CSS
	// Script is a module. It draws the map in the page's elements #pools and #legend, and takes it as JSON
	// from #map.
	Script template.JS
}

// StillOf returns the map of the named cluster.
func StillOf(c *clusterview.Cluster, name string) (*Still, error) {
	var style, script strings.Builder
	for _, file := range []string{"palette.css", "style.css"} {
		text, err := web.ReadFile("web/" + file)
		if err != nil {
			return nil, err
		}
		style.Write(text)
	}
	if err := bundle(&script, "still.js", map[string]bool{}); err != nil {
		return nil, err
	}
	return &Still{
		Map:    mapOf(c, name).withoutUsers(),
		Style:  template.CSS(style.String()), //nolint:gosec // it is our own
		Script: template.JS(script.String()), //nolint:gosec // it is our own
	}, nil
}

var (
	imported = regexp.MustCompile(`(?m)^import .* from "\./(.*)";\n`)
	exported = regexp.MustCompile(`(?m)^export `)
)

// bundle writes a module behind the modules that it imports, as one. No two of them may have a name in common.
func bundle(out *strings.Builder, file string, done map[string]bool) error {
	if done[file] {
		return nil
	}
	done[file] = true
	text, err := web.ReadFile("web/" + file)
	if err != nil {
		return fmt.Errorf("joining the scripts of the map: %w", err)
	}
	for _, match := range imported.FindAllSubmatch(text, -1) {
		if err := bundle(out, string(match[1]), done); err != nil {
			return err
		}
	}
	out.Write(exported.ReplaceAll(imported.ReplaceAll(text, nil), nil))
	return nil
}
