// Package browser runs a headless Chromium, and records errors in it.
package browser

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// ErrNone means that there is no Chromium.
var ErrNone = errors.New("no chromium is installed: on Debian, hack/chromium.sh installs it")

// patience is the longest time for the page to reach an expected state.
const patience = time.Minute

// Page is a page in its own browser.
type Page struct {
	ctx context.Context //nolint:containedctx // chromedp knows a browser by its context

	mu sync.Mutex
	// faults are console errors and uncaught exceptions.
	faults []string
	// requests are the requested URLs.
	requests []string
}

// find returns the path of Debian's Chromium, or of Google's build.
func find() (string, error) {
	for _, name := range []string{"chromium", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNone
}

// Open starts a browser with an empty page. It ends with ctx, or with stop.
func Open(ctx context.Context, width, height int64) (p *Page, stop func(), err error) {
	path, err := find()
	if err != nil {
		return nil, nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		// As root, and in containers, Chromium cannot create its own sandbox. It only shows
		// our own page.
		chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.Flag("hide-scrollbars", true),
		chromedp.WSURLReadTimeout(patience),
	)
	ctx, stopAllocator := chromedp.NewExecAllocator(ctx, options...)
	ctx, stopPage := chromedp.NewContext(ctx)
	stop = func() {
		stopPage()
		stopAllocator()
	}
	p = &Page{ctx: ctx}
	if err := p.start(width, height); err != nil {
		stop()
		return nil, nil, fmt.Errorf("starting %s: %w", path, err)
	}
	return p, stop, nil
}

func (p *Page) start(width, height int64) error {
	if err := chromedp.Listen(p.ctx, p.note); err != nil {
		return err
	}
	if _, err := chromedp.Call(p.ctx, network.Enable, network.EnableParams{}); err != nil {
		return err
	}
	return p.Do(chromedp.EmulateViewport(width, height))
}

// note is called for each event. log.EventEntryAdded is an error of the browser itself, such as a
// failed request or a forbidden one.
func (p *Page) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			for _, a := range e.Args {
				p.faults = append(p.faults, fmt.Sprintf("console: %s %s", a.Value, a.Description))
			}
		}
	case *runtime.EventExceptionThrown:
		p.faults = append(p.faults, fmt.Sprintf("%s %s", e.ExceptionDetails.Text, describe(e.ExceptionDetails)))
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			p.faults = append(p.faults, fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	}
}

func describe(e *runtime.ExceptionDetails) string {
	if e.Exception == nil {
		return e.URL
	}
	return e.Exception.Description
}

// Do performs steps on the page.
func (p *Page) Do(steps ...chromedp.Action[chromedp.Void]) error {
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	return chromedp.Do(ctx, steps...)
}

// Eval returns the value of a JavaScript expression.
func Eval[T any](p *Page, expression string) (T, error) {
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		return value, fmt.Errorf("%s: %w", expression, err)
	}
	return value, nil
}

// Until waits until a JavaScript condition holds. It checks before each frame.
func (p *Page) Until(condition string) error {
	_, err := Eval[bool](p, `new Promise(done => { (function look() { (`+condition+`) ? done(true) : requestAnimationFrame(look); })(); })`)
	return err
}

// Painted waits until the browser has painted all earlier requests.
func (p *Page) Painted() error {
	_, err := Eval[bool](p, `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
	return err
}

// Keys presses keys, one after the other.
func (p *Page) Keys(keys ...string) error {
	for _, k := range keys {
		if err := p.Do(chromedp.KeyEvent(k)); err != nil {
			return fmt.Errorf("key %q: %w", k, err)
		}
	}
	return nil
}

// Faults returns the errors so far.
func (p *Page) Faults() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.faults)
}

// Abroad returns the requests to hosts other than 127.0.0.1, and made is the number of all
// requests.
func (p *Page) Abroad() (abroad []string, made int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		if u, err := url.Parse(r); err != nil || u.Hostname() != "127.0.0.1" {
			abroad = append(abroad, r)
		}
	}
	return abroad, len(p.requests)
}

// Theme sets the system's theme to light or dark, and turns motion off.
func (p *Page) Theme(scheme string) error {
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	return err
}

// Shot returns a screenshot as PNG.
func (p *Page) Shot() ([]byte, error) {
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	return chromedp.Run(ctx, chromedp.CaptureScreenshot())
}
