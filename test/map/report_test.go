package mapbrowser

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/observe"
	"github.com/cilium-pool/cilium-pool-operator/test/map/browser"
	"github.com/cilium-pool/cilium-pool-operator/test/map/madeup"
)

// The report is one file: it loads nothing else, and what the cluster says stays text. Its map has the
// colours of the system's theme, and prints in light ones.
func TestReport(t *testing.T) {
	c, err := madeup.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	const name = `</script><script>console.error("not escaped")</script>`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := observe.WriteHTML(w, c, nil, name, "v0.0.0-test"); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	b := open(t, server.URL)
	b.untilText("header b", name)
	b.untilText("#pools", "48 of 64 held")
	if _, requests := b.page.Abroad(); requests != 1 {
		t.Errorf("the page made %d requests, want its own only", requests)
	}
	wide, err := browser.Eval[bool](b.page, `document.documentElement.scrollWidth > innerWidth`)
	b.must(err)
	if wide {
		t.Error("the page is wider than the window")
	}
	b.must(b.page.Do(chromedp.ScrollIntoView("canvas.map")))
	b.until(`document.querySelector("canvas.map").width > 0`)
	b.must(b.page.Theme("dark"))
	b.until(`document.documentElement.dataset.theme === "dark"`)
	b.paints(0, 0, "ramp1")
	if _, err := browser.Eval[bool](b.page, `dispatchEvent(new Event("beforeprint"))`); err != nil {
		t.Fatal(err)
	}
	b.paints(0, 0, "ramp1")
	b.until(`document.documentElement.dataset.theme === "light"`)
	_, err = browser.Eval[bool](b.page, `dispatchEvent(new Event("afterprint"))`)
	b.must(err)
	b.until(`document.documentElement.dataset.theme === "dark"`)

	b.must(b.page.Do(chromedp.Focus("canvas.map")))
	b.keys("n")
	b.untilText("#said", "10.20.1.0/24, node rack-1-02, 55 of 254 in use")
}

// paints checks the colour of a cell of the first map.
func (b *bed) paints(column, row int, colour string) {
	b.Helper()
	b.must(b.page.Painted())
	want, err := browser.Eval[string](b.page, `getComputedStyle(document.documentElement).getPropertyValue("--`+colour+`")`)
	b.must(err)
	if got := b.pixel(column, row); got != want {
		b.Errorf("cell %d, %d is %s, want %s, %s", column, row, got, colour, want)
	}
}
