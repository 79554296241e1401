// Command screenshots takes the screenshots in docs/images of the cluster in KUBECONFIG, preferably
// the cluster of make up.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/chromedp/chromedp"

	"github.com/cilium-pool/cilium-pool-operator/test/map/browser"
)

// scene is a screenshot of the cluster.
type scene struct {
	name, hash, theme string
	// card moves the cursor to a block, so that its card is shown.
	card bool
}

func scenes() []scene {
	return []scene{
		{name: "map-light", theme: "light", card: true},
		{name: "map-hilbert-dark", hash: "by=node&layout=hilbert", theme: "dark"},
	}
}

type options struct{ plugin, out string }

func main() {
	var o options
	flag.StringVar(&o.plugin, "plugin", ".cache/bin/kubectl-cilium_pool", "the plugin")
	flag.StringVar(&o.out, "out", "docs/images", "folder for the pictures")
	flag.Parse()
	if err := o.run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func (o options) run(ctx context.Context) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	url, end, err := o.serve(ctx)
	if err != nil {
		return err
	}
	defer end()
	for _, s := range scenes() {
		picture, err := s.shoot(ctx, url)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		path := filepath.Join(o.out, s.name+".png")
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

func (s scene) shoot(ctx context.Context, url string) ([]byte, error) {
	page, stop, err := browser.Open(ctx, 1280, 900)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := errors.Join(page.Theme(s.theme), page.Do(chromedp.Navigate(url+"#"+s.hash)),
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
