// Package mapbrowser tests the address map in a real browser.
//
// Only this suite finds a map that a browser shows wrongly, slowly or not at all.
package mapbrowser

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/addressmap"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/test/map/browser"
)

const token = "letmein"

// bed is a map with a browser that shows it.
type bed struct {
	*testing.T
	board *addressmap.Board
	page  *browser.Page
}

// look opens the map.
func look(t *testing.T, m *addressmap.Map) *bed {
	t.Helper()
	board := addressmap.NewBoard(m)
	server := httptest.NewServer(addressmap.Handler(board, token))
	t.Cleanup(func() {
		server.CloseClientConnections() // streams would not end by themselves
		server.Close()
	})
	b := open(t, server.URL+"/"+token+"/")
	b.board = board
	b.until(`document.querySelector("#live").textContent === "live"`)
	return b
}

// open opens a page. When the test ends, the page must not have logged an error, nor sent
// a request elsewhere.
func open(t *testing.T, url string) *bed {
	t.Helper()
	page, stop, err := browser.Open(t.Context(), 1280, 800)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if faults := page.Faults(); len(faults) > 0 {
			t.Errorf("the page complains:\n%s", strings.Join(faults, "\n"))
		}
		if abroad, made := page.Abroad(); len(abroad) > 0 || made == 0 {
			t.Errorf("of %d requests, these left loopback: %v", made, abroad)
		}
		stop()
	})
	b := &bed{T: t, page: page}
	b.must(page.Do(chromedp.Navigate(url)))
	return b
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) until(condition string) {
	b.Helper()
	if err := b.page.Until(condition); err != nil {
		seen, _ := browser.Eval[string](b.page, `document.querySelector("#search").value + "\n" + document.body.innerText.slice(0, 1500)`)
		b.Fatalf("%v; the page shows:\n%s\ncomplaints: %v", err, seen, b.page.Faults())
	}
}

// untilText waits until an element has a text.
func (b *bed) untilText(element, want string) {
	b.Helper()
	b.until(fmt.Sprintf(`document.querySelector(%q)?.innerText.includes(%q)`, element, want))
}

func (b *bed) keys(keys ...string) {
	b.Helper()
	b.must(b.page.Keys(keys...))
}

// pixel returns the colour of the middle of a cell of the first map, in rows.
func (b *bed) pixel(column, row int) string {
	b.Helper()
	colour, err := browser.Eval[string](b.page, fmt.Sprintf(`(() => {
		const c = document.querySelector("canvas.map"), side = Number(c.dataset.cell);
		const one = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
		one.drawImage(c, -(Number(c.dataset.gutter) + %d * side + 2), -(%d * side + 2));
		const d = one.getImageData(0, 0, 1, 1).data;
		return "#" + [0, 1, 2].map(i => d[i].toString(16).padStart(2, "0")).join("");
	})()`, column, row))
	b.must(err)
	return colour
}

func small() *addressmap.Map {
	m := planOf(48)
	m.Pools[0].Pool = "large"
	return m
}

func TestLoads(t *testing.T) {
	b := look(t, small())
	b.untilText("#pools h2", "large")
	b.untilText("#count", "48 blocks")
	b.until(`document.querySelector("canvas.map")?.dataset.cell > 0`)
	title, err := browser.Eval[string](b.page, `document.title`)
	b.must(err)
	if title != "Pod addresses of made-up" {
		t.Errorf("the title is %q", title)
	}
	labels, err := browser.Eval[int](b.page, `[...document.querySelectorAll("button, input, canvas[tabindex]")].filter(e => !(e.ariaLabel || e.innerText.trim())).length`)
	b.must(err)
	if labels != 0 {
		t.Errorf("%d controls have no name", labels)
	}
}

// Changes in the cluster appear on the page, and the page keeps its position.
func TestLive(t *testing.T) {
	m := small()
	b := look(t, m)
	b.untilText("#count", "48 blocks")
	free, err := browser.Eval[string](b.page, `getComputedStyle(document.documentElement).getPropertyValue("--free")`)
	b.must(err)
	b.must(b.page.Painted())
	if got := b.pixel(0, 0); got == free {
		t.Errorf("the first, reserved, cell is painted as free: %s", got)
	}
	next := *m
	next.Blocks = append(slices.Clone(m.Blocks), blockOf(cellOf(63), "newcomer", 30))
	next.Pools = append([]addressmap.Pool{}, m.Pools...)
	next.Pools[0].Blocks.InService++
	if got := b.pixel(15, 3); got != free {
		t.Fatalf("the last cell is %s, and not free (%s)", got, free)
	}
	b.board.Put(&next)
	b.untilText("#count", "49 blocks")
	b.must(b.page.Painted())
	full, err := browser.Eval[string](b.page, `getComputedStyle(document.documentElement).getPropertyValue("--ramp5")`)
	b.must(err)
	if got := b.pixel(15, 3); got != full {
		t.Errorf("the new block has color %s, want the color of a full one, %s", got, full)
	}
	b.board.Put(m)
	b.untilText("#count", "48 blocks")
	b.board.Problem("cannot watch the cluster: no route to host")
	b.untilText("#problem", "no route to host")
	b.untilText("#live", "may be old")
	b.board.Problem("")
	b.until(`document.querySelector("#problem").hidden`)
}

func TestEmpty(t *testing.T) {
	b := look(t, &addressmap.Map{Time: time.Now(), Pools: []addressmap.Pool{}, Blocks: []list.BlockRow{}})
	b.untilText("#pools", "There is no pool yet")
	m := small()
	b.board.Put(m)
	b.untilText("#count", "48 blocks")
}

// The search finds a node, an address and a pod, and shows only their blocks.
func TestSearch(t *testing.T) {
	m := small()
	b := look(t, m)
	wanted := m.Blocks[20]
	find := func(what, kind, shown string) {
		t.Helper()
		b.find(what, kind)
		b.untilText("#filters", shown)
	}
	find(wanted.Node, "node", "node "+wanted.Node)
	b.until(`document.activeElement.matches("canvas.map")`)
	b.untilText("#card", wanted.Node)
	find(wanted.CIDR.Addr().Next().String(), "address", "1 of 48 blocks")
	b.untilText("#card h3", wanted.CIDR.String())
	find("web-"+wanted.CIDR.Addr().String()+"-0", "pod", "shop/web-"+wanted.CIDR.Addr().String()+"-0")
	b.keys(kb.Escape)
	b.until(`document.querySelector("#count").innerText === "48 blocks"`)
}

// find searches for something, and selects the first match; says is contained in one of the
// matches.
func (b *bed) find(what, says string) {
	b.Helper()
	b.keys("/")
	b.until(`document.activeElement.id === "search"`)
	// chromedp also sends the character, in spite of the key's handler.
	_, err := browser.Eval[string](b.page, `document.querySelector("#search").value = ""`)
	b.must(err)
	b.keys(what)
	b.until(fmt.Sprintf(`[...document.querySelectorAll("#found [role=option]")].some(o => o.innerText.includes(%q))`, says))
	b.keys(kb.Enter)
}

func TestFilters(t *testing.T) {
	m := small()
	m.Blocks[3].Phase = "Draining"
	b := look(t, m)
	b.must(b.page.Do(chromedp.Click(`#legend button`)))
	b.untilText("#filters", "phase draining")
	b.until(`location.hash.includes("phase=Draining")`)
	b.must(b.page.Do(chromedp.Click(`#filters .chip`)))
	b.until(`document.querySelectorAll("#filters .chip").length === 0`)
	// A click on a cell shows only its node, another click all nodes again.
	at, err := browser.Eval[[]float64](b.page, `(() => {
		const c = document.querySelector("canvas.map"), r = c.getBoundingClientRect(), side = Number(c.dataset.cell);
		return [r.left + Number(c.dataset.gutter) + 4.5 * side, r.top + side / 2];
	})()`)
	b.must(err)
	b.must(b.page.Do(chromedp.MouseClickXY(at[0], at[1])))
	b.untilText("#filters", "node "+m.Blocks[0].Node)
	b.untilText("#card h3", m.Blocks[0].CIDR.String())
	b.untilText("#card ul", m.Blocks[0].Users[0].Name)
	b.must(b.page.Do(chromedp.MouseClickXY(at[0], at[1])))
	b.until(`document.querySelectorAll("#filters .chip").length === 0`)
}

func TestKeyboard(t *testing.T) {
	m := small()
	b := look(t, m)
	b.keys("2")
	b.until(`document.querySelector("#by [data-value=node]").ariaChecked === "true"`)
	b.keys("h")
	b.until(`document.querySelector("#layout [data-value=hilbert]").ariaChecked === "true"`)
	b.keys("r", "d")
	b.until(`document.documentElement.dataset.theme === "light"`)
	b.keys("?")
	b.until(`document.querySelector("#keys").open`)
	b.keys(kb.Escape)
	b.until(`!document.querySelector("#keys").open`)
	// Tab alone reaches the map, and its focus is visible.
	for range 30 {
		b.keys(kb.Tab)
		there, err := browser.Eval[bool](b.page, `document.activeElement.matches("canvas.map")`)
		b.must(err)
		if there {
			break
		}
	}
	b.until(`document.activeElement.matches("canvas.map")`)
	b.until(`getComputedStyle(document.activeElement).outlineStyle === "solid"`)
	b.keys(kb.Home, "n")
	b.untilText("#card h3", m.Blocks[0].CIDR.String())
	b.untilText("#said", "node "+m.Blocks[0].Node)
	b.keys(kb.ArrowDown)
	b.untilText("#card h3", cellOf(4+16).String())
	b.keys(kb.End)
	b.untilText("#card h3", cellOf(63).String())
	b.untilText("#card", "Free")
	b.keys("p", kb.Enter)
	b.untilText("#filters", "node "+m.Blocks[47].Node)
	b.keys(kb.Escape)
	b.until(`document.querySelectorAll("#filters .chip").length === 0`)
	before := b.side()
	b.keys("+", "+")
	b.until(fmt.Sprintf(`Number(document.querySelector("canvas.map").dataset.cell) > %d`, before))
	b.keys("0")
	b.until(fmt.Sprintf(`Number(document.querySelector("canvas.map").dataset.cell) === %d`, before))
	b.keys("t")
	b.until(`document.querySelectorAll("tbody tr").length === 48`)
}

func (b *bed) side() int {
	b.Helper()
	side, err := browser.Eval[int](b.page, `Number(document.querySelector("canvas.map").dataset.cell)`)
	b.must(err)
	return side
}

// imported returns the value of an expression with a module of the page as m.
func imported[T any](b *bed, module, expression string) T {
	b.Helper()
	text, err := browser.Eval[string](b.page, fmt.Sprintf(`import("./%s").then(m => JSON.stringify(%s))`, module, expression))
	b.must(err)
	var v T
	b.must(json.Unmarshal([]byte(text), &v))
	return v
}

func TestGrid(t *testing.T) {
	type size struct{ Columns, Rows int }
	b := look(t, small())
	for name, test := range map[string]struct {
		bits          int
		rows, hilbert size
	}{
		"one block":       {0, size{1, 1}, size{1, 1}},
		"two":             {1, size{2, 1}, size{2, 1}},
		"a /26 of /29":    {3, size{8, 1}, size{4, 2}},
		"a /20 of /27":    {7, size{32, 4}, size{16, 8}},
		"a /19 of /27":    {8, size{32, 8}, size{16, 16}},
		"4,096 blocks":    {12, size{128, 32}, size{64, 64}},
		"8,192 blocks":    {13, size{128, 64}, size{128, 64}},
		"131,072 blocks":  {17, size{512, 256}, size{512, 256}},
		"the largest map": {18, size{1024, 256}, size{512, 512}},
	} {
		for layout, want := range map[string]size{"rows": test.rows, "hilbert": test.hilbert} {
			if got := imported[size](b, "layout.js", fmt.Sprintf(`m.grid(%q, %d)`, layout, test.bits)); got != want {
				t.Errorf("%s, %s: %v, want %v", name, layout, got, want)
			}
		}
	}
}

// Each cell has its own place, in both layouts. Along a Hilbert curve, adjacent addresses are
// adjacent on the map, and each aligned range is a square if its size is a power of four.
func TestPlaces(t *testing.T) {
	b := look(t, small())
	for bits := range 13 {
		for _, layout := range []string{"rows", "hilbert"} {
			size := imported[struct{ Columns, Rows int }](b, "layout.js", fmt.Sprintf(`m.grid(%q, %d)`, layout, bits))
			places := imported[[][2]int](b, "layout.js", fmt.Sprintf(`Array.from({ length: %d }, (_, cell) => m.at(%q, %d, cell))`, 1<<bits, layout, bits))
			seen := map[[2]int]bool{}
			for cell, p := range places {
				if seen[p] || p[0] < 0 || p[0] >= size.Columns || p[1] < 0 || p[1] >= size.Rows {
					t.Fatalf("%s of 2^%d: cell %d is at %v", layout, bits, cell, p)
				}
				seen[p] = true
			}
			if layout == "hilbert" {
				checkCurve(t, bits, places)
			}
		}
	}
}

func checkCurve(t *testing.T, bits int, places [][2]int) {
	t.Helper()
	for cell := 1; cell < len(places); cell++ {
		x, y := places[cell][0]-places[cell-1][0], places[cell][1]-places[cell-1][1]
		if x*x+y*y != 1 {
			t.Fatalf("2^%d: cell %d is at %v, and the one before at %v", bits, cell, places[cell], places[cell-1])
		}
	}
	for size := 2; size <= bits; size += 2 {
		side := 1 << (size / 2)
		for cell, p := range places {
			if first := places[cell>>size<<size]; p[0]/side != first[0]/side || p[1]/side != first[1]/side {
				t.Fatalf("2^%d: the range of cell %d is no square of %d", bits, cell, side)
			}
		}
	}
}

// A block's place on the ramp of colours.
func TestLevel(t *testing.T) {
	b := look(t, small())
	for _, test := range []struct{ used, addresses, want int }{
		{0, 30, 0}, {1, 30, 1}, {8, 32, 1}, {9, 32, 2}, {16, 32, 2}, {24, 32, 3}, {31, 32, 4}, {32, 32, 5}, {33, 32, 5}, {3, 0, 0},
	} {
		if got := imported[int](b, "words.js", fmt.Sprintf(`m.level({ used: %d, addresses: %d })`, test.used, test.addresses)); got != test.want {
			t.Errorf("%d of %d: level %d, want %d", test.used, test.addresses, got, test.want)
		}
	}
}

func TestLarge(t *testing.T) {
	m := planOf(100_000)
	b := look(t, m)
	b.until(`document.querySelector("canvas.map")?.dataset.cell > 0`)
	b.must(b.page.Do(chromedp.Focus("canvas.map")))
	b.keys(kb.Home, "n")
	b.untilText("#card h3", m.Blocks[0].CIDR.String())
	b.keys(kb.Enter, "+", kb.ArrowRight, kb.Escape)
	next := *m
	next.Blocks = slices.Clone(m.Blocks)
	next.Blocks[50_000].Node = "newcomer"
	b.board.Put(&next)
	b.must(b.page.Do(chromedp.SendKeys("#search", "newcomer")))
	b.until(`[...document.querySelectorAll("#found [role=option]")].some(o => o.innerText.includes("newcomer"))`)
}

// The checks can fail: a page with errors, or with requests elsewhere, is noticed.
func TestFaultsAreNoticed(t *testing.T) {
	page, stop, err := browser.Open(t.Context(), 300, 200)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	b := addressmap.NewBoard(small())
	server := httptest.NewServer(addressmap.Handler(b, token))
	defer func() {
		server.CloseClientConnections()
		server.Close()
	}()
	if err := page.Do(chromedp.Navigate(server.URL + "/" + token + "/")); err != nil {
		t.Fatal(err)
	}
	_, err = browser.Eval[bool](page, `(console.error("broken"), fetch("http://192.0.2.1/").catch(() => true))`)
	if err := errors.Join(err, page.Painted()); err != nil {
		t.Fatal(err)
	}
	if len(page.Faults()) < 2 {
		t.Errorf("of an error in the console and a request that the policy forbids, only this was noticed: %v", page.Faults())
	}
}
