// Package browser runs a headless Chromium, and notes what goes wrong in it.
package browser

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// ErrNone: there is no Chromium.
var ErrNone = errors.New("no chromium is installed: make map-test installs it on Debian")

// Page is a page of a browser of its own.
type Page struct {
	ctx context.Context //nolint:containedctx // chromedp knows a browser by its context

	mu sync.Mutex
	// faults are errors in the console, and exceptions that nobody caught.
	faults []string
	// requests are the addresses that were asked for.
	requests []string
}

// Open starts a browser with an empty page. It ends with ctx, or with stop.
func Open(ctx context.Context, width, height int64) (p *Page, stop context.CancelFunc, err error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, nil, ErrNone
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		// As root, and in containers, Chromium cannot make a sandbox of its own. It
		// is shown our own page only.
		chromedp.NoSandbox,
		chromedp.Flag("disable-gpu", true),
		chromedp.Flag("hide-scrollbars", true),
		chromedp.WSURLReadTimeout(2*time.Minute),
	)
	ctx, stopAllocator := chromedp.NewExecAllocator(ctx, options...)
	ctx, stopPage := chromedp.NewContext(ctx)
	stop = func() {
		stopPage()
		stopAllocator()
	}
	p = &Page{ctx: ctx}
	chromedp.ListenTarget(ctx, p.note)
	if err := p.Run(network.Enable(), log.Enable(), runtime.Enable(), emulation.SetDeviceMetricsOverride(width, height, 1, false)); err != nil {
		stop()
		return nil, nil, fmt.Errorf("starting %s: %w", path, err)
	}
	return p, stop, nil
}

// Run does things on the page.
func (p *Page) Run(actions ...chromedp.Action) error { return chromedp.Run(p.ctx, actions...) }

func (p *Page) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			p.faults = append(p.faults, fmt.Sprintf("console: %s", arguments(e.Args)))
		}
	case *runtime.EventExceptionThrown:
		p.faults = append(p.faults, e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError || e.Entry.Level == log.LevelWarning {
			p.faults = append(p.faults, fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	}
}

func arguments(args []*runtime.RemoteObject) string {
	var words []string
	for _, a := range args {
		words = append(words, string(a.Value)+a.Description)
	}
	return strings.Join(words, " ")
}

// Faults are the errors so far.
func (p *Page) Faults() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.faults...)
}

// Abroad are the requests that went anywhere but to loopback, and Requests how
// many there were in all.
func (p *Page) Abroad() (abroad []string, requests int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		u, err := url.Parse(r)
		if err != nil || u.Hostname() != "127.0.0.1" && u.Scheme != "about" {
			abroad = append(abroad, r)
		}
	}
	return abroad, len(p.requests)
}

// Theme lets the system be dark or light.
func (p *Page) Theme(scheme string) error {
	return p.Run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}))
}

// Shot is a picture of what is seen, as PNG.
func (p *Page) Shot() ([]byte, error) {
	var png []byte
	err := p.Run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		png, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng).Do(ctx)
		return err
	}))
	return png, err
}


// Painted waits until the browser has painted what was asked for so far.
func Painted() chromedp.Action {
	const frames = `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`
	return chromedp.Evaluate(frames, nil, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) })
}
