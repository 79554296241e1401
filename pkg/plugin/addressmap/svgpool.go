package addressmap

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

// drawnPool is a pool with its blocks and where they are drawn.
type drawnPool struct {
	*Pool
	// placed are the blocks of each section, strays the blocks in none.
	placed [][]placedBlock
	strays []placedBlock
	// label returns the part of a node's name that differs from the pool's other nodes.
	label func(node string) string
}

type placedBlock struct {
	*Block
	first, count int
}

// drawn assigns a pool's blocks to its sections.
func (d *drawing) drawn(p *Pool) *drawnPool {
	out := &drawnPool{Pool: p, placed: make([][]placedBlock, len(p.Sections))}
	nodes := map[string]bool{}
	for i := range d.m.Blocks {
		b := &d.m.Blocks[i]
		if b.Pool != p.Name || ipalloc.FamilyOf(b.CIDR.Addr()).String() != p.Family {
			continue
		}
		nodes[b.Node] = true
		if section, first, count, ok := p.placeOf(b.CIDR); ok {
			out.placed[section] = append(out.placed[section], placedBlock{b, first, count})
		} else {
			out.strays = append(out.strays, placedBlock{b, len(out.strays), 1})
		}
	}
	out.label = shortener(slices.Collect(maps.Keys(nodes)))
	return out
}

// shortener removes the common prefix of all nodes' names, up to a dash or a dot.
func shortener(nodes []string) func(string) string {
	common := ""
	for i, n := range nodes {
		if i == 0 {
			common = n
		}
		for !strings.HasPrefix(n, common) {
			common = common[:len(common)-1]
		}
	}
	cut := strings.LastIndexAny(common, "-.") + 1
	return func(node string) string { return node[cut:] }
}

func nodeColours(m *Map) map[string]int {
	numbers := map[string]int{}
	for i := range m.Blocks {
		numbers[m.Blocks[i].Node] = 0
	}
	for i, name := range slices.Sorted(maps.Keys(numbers)) {
		numbers[name] = i
	}
	return numbers
}

func (d *drawing) pool(p *drawnPool) {
	d.y += 20
	top := d.y
	inner := margin + padding
	right := width - margin - padding
	outer := d.body
	d.body = &bytes.Buffer{}
	d.y += 38
	d.printf(`<text x="%d" y="%d" class="f-text b" font-size="19">%s<tspan class="f-muted" font-size="13" font-weight="400" dx="12">%s</tspan></text>`+"\n",
		inner, d.y, escape(p.Name), escape(p.kind()))
	d.printf(`<text x="%d" y="%d" class="f-muted r" font-size="13">%s</text>`+"\n", right, d.y, escape(p.figures()))
	d.y += 14
	d.bar(p.Pool, inner, right-inner)
	d.y += 8
	if p.State != "Ready" {
		d.y += 24
		d.text(inner, d.y, "Conflict b", 13, strings.TrimSuffix(p.State+": "+p.Message, ": "))
	}
	for i, s := range p.Sections {
		d.section(p, s, p.placed[i])
	}
	if len(p.strays) > 0 {
		d.strays(p)
	}
	d.y += padding
	card := d.body
	d.body = outer
	d.printf(`<rect x="%d" y="%d" width="%d" height="%d" rx="10" class="f-surface s-line"/>`+"\n", margin, top, width-2*margin, d.y-top)
	d.body.Write(card.Bytes())
}

func (p Pool) kind() string {
	family := map[string]string{"ipv4": "IPv4", "ipv6": "IPv6"}[p.Family]
	if family == "" {
		return ""
	}
	return fmt.Sprintf("%s · /%d blocks · %s", family, p.BlockBits, cli.Count(p.Nodes, "node"))
}

func (p Pool) figures() string {
	s := fmt.Sprintf("%d of %s blocks held · %s free · %d of %d addresses in use", p.Held(), cli.Many(p.Total), cli.Many(p.Free), p.Used, p.Addresses)
	if p.Addresses > 0 {
		s += fmt.Sprintf(" (%d%%)", (100*p.Used+p.Addresses-1)/p.Addresses)
	}
	return s
}

func (d *drawing) bar(p *Pool, x, wide int) {
	d.printf(`<rect x="%d" y="%d" width="%d" height="6" rx="3" class="f-free"/>`, x, d.y, wide)
	at := float64(x)
	for _, part := range []struct {
		class string
		n     int
	}{{InService, p.InService}, {Draining, p.Draining}, {CoolingDown, p.CoolingDown}} {
		if part.n > 0 && p.Total > 0 {
			w := max(1, float64(wide)*float64(part.n)/float64(p.Total))
			d.printf(`<rect x="%.1f" y="%d" width="%.1f" height="6" rx="2" class="f-%s"/>`, at, d.y, w, part.class)
			at += w
		}
	}
	d.printf("\n")
	d.y += 6
}

// section draws one map, with the first address of each row.
func (d *drawing) section(p *drawnPool, s Section, blocks []placedBlock) {
	bits := p.BlockBits - s.CIDR.Bits()
	if bits < 0 {
		return
	}
	columns, rows := grid(d.o.Layout, bits)
	cell := max(1, min(mostCell, mapWidth/columns))
	x := margin + padding
	d.y += 30
	d.printf(`<text x="%d" y="%d" class="f-text mono b" font-size="13">%s<tspan class="f-muted" font-weight="400" dx="10">%s</tspan></text>`+"\n",
		x, d.y, s.CIDR, escape(s.words(bits, len(blocks))))
	d.y += 10
	if d.o.Layout == Rows {
		step := 1
		for step*cell < 16 {
			step *= 2
		}
		for y := 0; y < rows; y += step {
			d.printf(`<text x="%d" y="%d" class="f-muted mono r" font-size="11">%s</text>`+"\n",
				x+gutter-10, d.y+y*cell+max(6, min(cell/2, 10))+4, cellAt(s.CIDR, p.BlockBits, y*columns).Addr())
		}
		x += gutter
	}
	d.cells(p, s, blocks, field{x: x, y: d.y, cell: cell, columns: columns, rows: rows, place: func(c int) (x, y int) { return Place(d.o.Layout, bits, c) }})
	d.y += rows * cell
}

func (s Section) words(bits, held int) string {
	w := fmt.Sprintf("%d of %s held", held, cli.Many(1<<bits))
	if s.Of != s.CIDR {
		w += ", a part of " + s.Of.String()
	}
	switch {
	case s.Drains:
		w += ", draining"
	case s.Cordoned:
		w += ", cordoned"
	}
	if s.ClosedBy != "" {
		w += ", assigned by pool " + s.ClosedBy
	}
	return w
}

// strays draws blocks in none of the pool's CIDRs, for example after one was removed.
func (d *drawing) strays(p *drawnPool) {
	d.y += 30
	d.text(margin+padding, d.y, "text b", 13, fmt.Sprintf("%s outside the pool's CIDRs", cli.Count(len(p.strays), "block")))
	d.y += 10
	columns := mapWidth / mostCell
	rows := (len(p.strays) + columns - 1) / columns
	f := field{x: margin + padding, y: d.y, cell: mostCell, place: func(c int) (x, y int) { return c % columns, c / columns }}
	for _, b := range p.strays {
		d.block(p, b, f)
	}
	d.y += rows * mostCell
}

type field struct {
	x, y, cell, columns, rows int
	place                     func(cell int) (x, y int)
}

func (f field) at(cell int) (x, y int) {
	x, y = f.place(cell)
	return f.x + x*f.cell, f.y + y*f.cell
}

func (f field) gap() int {
	if f.cell >= gapFrom {
		return 1
	}
	return 0
}

func (d *drawing) cells(p *drawnPool, s Section, blocks []placedBlock, f field) {
	class := "free"
	if s.closed() {
		class = "closed"
	}
	d.printf(`<rect x="%d" y="%d" width="%d" height="%d" class="f-%s"/>`+"\n", f.x, f.y, f.columns*f.cell-f.gap(), f.rows*f.cell-f.gap(), class)
	d.reserved(p, s, f)
	if f.gap() > 0 {
		d.lines(f)
	}
	if d.titles {
		for _, b := range blocks {
			d.block(p, b, f)
		}
		return
	}
	d.paths(blocks, f)
}

func (d *drawing) lines(f field) {
	d.printf(`<path class="s-surface" d="`)
	for i := 1; i < f.columns; i++ {
		d.printf("M%d.5 %dv%d", f.x+i*f.cell-1, f.y, f.rows*f.cell)
	}
	for i := 1; i < f.rows; i++ {
		d.printf("M%d %d.5h%d", f.x, f.y+i*f.cell-1, f.columns*f.cell)
	}
	d.printf(`"/>` + "\n")
}

func (d *drawing) reserved(p *drawnPool, s Section, f field) {
	for _, r := range p.Reserved {
		if !r.Overlaps(s.CIDR) || r.Bits() > p.BlockBits {
			continue
		}
		from := r
		if r.Bits() < s.CIDR.Bits() {
			from = s.CIDR
		}
		first := cellOf(s.CIDR, p.BlockBits, from.Addr())
		for c := first; c < first+1<<(p.BlockBits-from.Bits()); c++ {
			x, y := f.at(c)
			d.printf(`<rect x="%d" y="%d" width="%d" height="%d" class="f-reserved"/>`, x, y, f.cell-f.gap(), f.cell-f.gap())
		}
		d.printf("\n")
	}
}

func (d *drawing) block(p *drawnPool, b placedBlock, f field) {
	side := f.cell - f.gap()
	class := d.class(b.Block)
	d.printf(`<g><title>%s</title>`, escape(b.describe(d.m.Time)))
	for c := b.first; c < b.first+b.count; c++ {
		x, y := f.at(c)
		d.printf(`<rect x="%d" y="%d" width="%d" height="%d" class="f-%s"/>`, x, y, side, side, class)
		if overlay := map[string]string{Draining: "hatch", CoolingDown: "dots"}[b.Phase]; overlay != "" && f.cell >= 8 {
			d.printf(`<rect x="%d" y="%d" width="%d" height="%d" fill="url(#%s)"/>`, x, y, side, side, overlay)
		}
		if b.Conflict {
			d.printf(`<rect x="%d" y="%d" width="%d" height="%d" class="s-Conflict" fill="none" stroke-width="2"/>`, x+1, y+1, side-2, side-2)
		}
	}
	if label := d.label(p, b.Block); f.cell >= textFrom && b.Phase == InService && len(label)*6 < side {
		x, y := f.at(b.first)
		d.printf(`<text x="%d" y="%d" class="on-%s c" font-size="11">%s</text>`, x+side/2, y+side/2+4, class, escape(label))
	}
	d.printf("</g>\n")
}

func (d *drawing) label(p *drawnPool, b *Block) string {
	if d.o.By == ByUtilisation {
		return fmt.Sprint(b.Used)
	}
	return p.label(b.Node)
}

// paths draws many blocks, one path for each colour.
func (d *drawing) paths(blocks []placedBlock, f field) {
	side := f.cell - f.gap()
	byClass := map[string]*strings.Builder{}
	for _, b := range blocks {
		class := d.class(b.Block)
		if byClass[class] == nil {
			byClass[class] = &strings.Builder{}
		}
		for c := b.first; c < b.first+b.count; c++ {
			x, y := f.at(c)
			fmt.Fprintf(byClass[class], "M%d %dh%dv%dh-%dz", x, y, side, side, side)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(byClass)) {
		d.printf(`<path class="f-%s" d="%s"/>`+"\n", class, byClass[class])
	}
}
