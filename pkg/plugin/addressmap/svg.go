package addressmap

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

// Sizes in an SVG, in pixels.
const (
	width    = 1280
	margin   = 32
	padding  = 24
	gutter   = 128
	mapWidth = width - 2*margin - 2*padding - gutter
	mostCell = 34
	// textFrom is the size of the smallest cell with text in it, gapFrom with a gap around it.
	textFrom, gapFrom = 24, 4
	// mostTitles is the maximum number of blocks with their own text on hover.
	mostTitles = 4096
)

// SVG draws a map. It follows the viewer's theme if that is known, and is light otherwise.
func SVG(w io.Writer, m *Map, o Options) error {
	d := &drawing{m: m, o: o, body: &bytes.Buffer{}, colours: nodeColours(m), titles: len(m.Blocks) <= mostTitles}
	d.head()
	d.legend()
	for i := range m.Pools {
		d.pool(d.drawn(&m.Pools[i]))
	}
	if len(m.Pools) == 0 {
		d.text(margin, d.y+margin, "muted", 15, "There is no pool yet.")
		d.y += 2 * margin
	}
	height := d.y + margin
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s">
<style>%s</style>
<defs>
<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="f-surface" width="2" height="6" opacity=".75"/></pattern>
<pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse"><circle class="f-surface" cx="3" cy="3" r="1.3" opacity=".9"/></pattern>
</defs>
<rect class="f-page" width="%d" height="%d"/>
%s</svg>
`, width, height, width, height, escape(d.title()), svgCSS(), width, height, d.body.String())
	return err
}

// svgCSS has classes f-NAME that fill with a colour, and on-NAME for text on it.
func svgCSS() string {
	var s strings.Builder
	s.WriteString("text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}.c{text-anchor:middle}.r{text-anchor:end}.b{font-weight:600}")
	rules := func(t theme) {
		for _, n := range t.names() {
			fmt.Fprintf(&s, ".f-%s{fill:%s}.on-%s{fill:%s}.s-%s{stroke:%s}", n, t[n], n, ink(t[n]), n, t[n])
		}
	}
	rules(light())
	s.WriteString("@media(prefers-color-scheme:dark){")
	rules(dark())
	s.WriteString("}")
	return s.String()
}

// drawing is an SVG that is written from top to bottom.
type drawing struct {
	m       *Map
	o       Options
	colours map[string]int
	titles  bool
	body    *bytes.Buffer
	y       int
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(d.body, format, args...) }

func (d *drawing) text(x, y int, class string, size int, s string) {
	d.printf(`<text x="%d" y="%d" class="f-%s" font-size="%d">%s</text>`+"\n", x, y, class, size, escape(s))
}

func (d *drawing) title() string {
	if d.m.Cluster == "" {
		return "Pod addresses"
	}
	return "Pod addresses of " + d.m.Cluster
}

func (d *drawing) head() {
	pools := map[string]bool{}
	for _, p := range d.m.Pools {
		pools[p.Name] = true
	}
	d.text(margin, 52, "text b", 26, d.title())
	d.text(margin, 76, "muted", 14, fmt.Sprintf("%s · %s in %s · %s", d.m.Time.UTC().Format("2006-01-02 15:04:05 UTC"),
		cli.Count(len(d.m.Blocks), "block"), cli.Count(len(pools), "pool"), cli.Count(len(d.colours), "node")))
	d.y = 98
}

func (d *drawing) legend() {
	x := margin
	key := func(class, label, overlay string) {
		d.printf(`<rect x="%d" y="%d" width="16" height="16" rx="3" class="f-%s"/>`, x, d.y, class)
		if overlay != "" {
			d.printf(`<rect x="%d" y="%d" width="16" height="16" rx="3" fill="url(#%s)"/>`, x, d.y, overlay)
		}
		d.text(x+23, d.y+13, "muted", 13, label)
		x += 23 + 7*len([]rune(label)) + 26
	}
	key("free", "free", "")
	phase := "InService"
	switch d.o.By {
	case ByUtilisation:
		for i, label := range rampLabels() {
			key(fmt.Sprintf("ramp%d", i), label, "")
		}
		phase = "ramp2"
	case ByNode:
		key("node0", "a colour per node, in turn", "")
		phase = "node0"
	case ByPhase:
		key("InService", "in service", "")
	}
	draining, coolingDown := phase, phase
	if d.o.By == ByPhase {
		draining, coolingDown = "Draining", "CoolingDown"
	}
	key(draining, "draining", "hatch")
	key(coolingDown, "cooling down", "dots")
	key("reserved", "reserved", "")
	if slices.ContainsFunc(d.m.Pools, Pool.closed) {
		key("closed", "no new blocks", "")
	}
	d.y += 16
}

func (d *drawing) class(b *Block) string {
	switch d.o.By {
	case ByNode:
		return fmt.Sprintf("node%d", d.colours[b.Node]%nodeNumbers)
	case ByPhase:
		return b.Phase
	}
	return fmt.Sprintf("ramp%d", level(b.Used, b.Addresses))
}

func (b *Block) describe(now time.Time) string {
	s := fmt.Sprintf("%s\nnode %s\n%d of %d addresses in use", b.CIDR, b.Node, b.Used, b.Addresses)
	if b.Phase != InService {
		s += "\n" + b.Phase
		if b.WaitsFor != "" {
			s += ", waits for " + b.WaitsFor
		}
	}
	if b.Conflict {
		s += "\noverlaps an older block"
	}
	s += "\nheld since " + b.Created.UTC().Format("2006-01-02 15:04 UTC")
	if days := int(now.Sub(b.Created).Hours() / 24); days > 0 {
		s += fmt.Sprintf(" (%s)", cli.Count(days, "day"))
	}
	return s
}

func escape(s string) string {
	var b bytes.Buffer
	// Writing to a buffer cannot fail.
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}
