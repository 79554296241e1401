package addressmap

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the SVGs that are expected")

// Look at the SVGs in testdata whenever they change.
func TestSVG(t *testing.T) {
	tests := map[string]struct {
		m *Map
		o Options
	}{
		"utilisation-rows": {sample(), Options{ByUtilisation, Rows}},
		"node-hilbert":     {sample(), Options{ByNode, Hilbert}},
		"phase-rows":       {sample(), Options{ByPhase, Rows}},
		"empty":            {&Map{Time: at(5)}, Options{ByUtilisation, Rows}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := SVG(&got, test.m, test.o); err != nil {
				t.Fatal(err)
			}
			wellFormed(t, got.Bytes())
			path := filepath.Join("testdata", name+".svg")
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s (-want +got); go test ./pkg/plugin/addressmap -update fixes it:\n%s", path, diff)
			}
		})
	}
}

func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the SVG is no XML: %v", err)
		}
	}
}

// Of very many blocks only colours are drawn, so that viewers can cope.
func TestLargeSVG(t *testing.T) {
	whole := cidr("10.0.0.0/10")
	m := &Map{Time: at(5), Pools: []Pool{{Name: "large", Family: "ipv4", BlockBits: 27, State: "Ready", Total: 1 << 17, Sections: []Section{{CIDR: whole, Of: whole}}}}}
	for i := range 100_000 {
		m.Blocks = append(m.Blocks, Block{CIDR: cellAt(whole, 27, i), Pool: "large", Node: fmt.Sprintf("node-%d", i/8), Phase: InService, Addresses: 30, Used: i % 31})
	}
	var got bytes.Buffer
	if err := SVG(&got, m, Options{ByUtilisation, Rows}); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, got.Bytes())
	if cells := strings.Count(got.String(), "h2v2h-2z"); cells != 100_000 {
		t.Errorf("%d cells are drawn", cells)
	}
	if got.Len() > 4<<20 {
		t.Errorf("the SVG has %d bytes", got.Len())
	}
}

func TestShortener(t *testing.T) {
	tests := map[string]struct {
		nodes []string
		want  string // of the first
	}{
		"a common word":     {[]string{"beijing-01", "beijing-02"}, "01"},
		"half a word":       {[]string{"edge-011", "edge-012"}, "011"},
		"nothing in common": {[]string{"a-1", "b-1"}, "a-1"},
		"one node":          {[]string{"edge-01"}, "01"},
		"one is the prefix": {[]string{"edge", "edge-01"}, "edge"},
		"none":              {nil, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			first := ""
			if len(test.nodes) > 0 {
				first = test.nodes[0]
			}
			if got := shortener(test.nodes)(first); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
