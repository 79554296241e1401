// Command screenshots takes the screenshots in docs/images: of the cluster in KUBECONFIG,
// preferably the cluster of make up, and of generated plans.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/chromedp/chromedp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/addressmap"
	"github.com/cilium-pool/cilium-pool-operator/test/map/browser"
	"github.com/cilium-pool/cilium-pool-operator/test/map/plan"
)

const width = 1280

// scene is a screenshot of the cluster or, with blocks, of a generated plan.
type scene struct {
	name, hash string
	blocks     int
	height     int64
	// card moves the cursor to a block, so that its card is shown.
	card   bool
	themes []string
}

func scenes() []scene {
	return []scene{
		{name: "map", height: 900, card: true, themes: []string{"light", "dark"}},
		{name: "map-hilbert", hash: "by=node&layout=hilbert", height: 900, themes: []string{"dark"}},
		{name: "map-4096", blocks: 4096, height: 820, card: true, themes: []string{"light"}},
		{name: "map-100000", hash: "by=phase", blocks: 100_000, height: 720, themes: []string{"dark"}},
	}
}

type options struct{ plugin, out, only string }

func main() {
	var o options
	flag.StringVar(&o.plugin, "plugin", ".cache/bin/kubectl-cilium_pool", "the plugin")
	flag.StringVar(&o.out, "out", "docs/images", "folder for the pictures")
	flag.StringVar(&o.only, "only", "", "the scene to make; empty: all")
	flag.Parse()
	if err := o.run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func (o options) run(ctx context.Context) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for _, s := range scenes() {
		if o.only != "" && o.only != s.name {
			continue
		}
		if err := o.shootAll(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (o options) shootAll(ctx context.Context, s scene) error {
	var url string
	if s.blocks > 0 {
		made := httptest.NewServer(addressmap.Handler(addressmap.NewBoard(plan.Of(s.blocks)), "made-up"))
		defer func() {
			made.CloseClientConnections() // streams would not end by themselves
			made.Close()
		}()
		url = made.URL + "/made-up/"
	} else {
		served, end, err := o.serve(ctx)
		if err != nil {
			return err
		}
		defer end()
		url = served
	}
	for _, theme := range s.themes {
		picture, err := s.shoot(ctx, url, theme)
		if err != nil {
			return fmt.Errorf("%s: %w", theme, err)
		}
		path := filepath.Join(o.out, s.name+"-"+theme+".png")
		if err := os.WriteFile(path, picture, 0o644); err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}

// serve runs the plugin, and returns the address that it prints.
func (o options) serve(ctx context.Context) (url string, end func(), err error) {
	cmd := exec.CommandContext(ctx, o.plugin, "map")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	end = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		end()
		return "", nil, fmt.Errorf("%s map printed no address: %w", o.plugin, err)
	}
	return strings.TrimSpace(line), end, nil
}

func (s scene) shoot(ctx context.Context, url, theme string) ([]byte, error) {
	page, stop, err := browser.Open(ctx, width, s.height)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := errors.Join(page.Theme(theme), page.Do(chromedp.Navigate(url+"#"+s.hash)),
		page.Until(`document.querySelector("canvas.map")?.dataset.cell > 0`)); err != nil {
		return nil, err
	}
	if s.card {
		if err := errors.Join(page.Keys("\t"), page.Do(chromedp.Focus("canvas.map")), page.Keys("n", "n", "n"),
			page.Until(`document.querySelector("#card li")`)); err != nil {
			return nil, err
		}
	}
	if err := page.Painted(); err != nil {
		return nil, err
	}
	picture, err := page.Shot()
	if faults := page.Faults(); len(faults) > 0 {
		return nil, fmt.Errorf("the page complains: %s", strings.Join(faults, "; "))
	}
	return picture, err
}
