// Command screenshots makes the pictures of docs/images, of the cluster that
// KUBECONFIG names: best that of make up.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/addressmap"
	"github.com/cilium-pool/cilium-pool-operator/test/map/browser"
	"github.com/cilium-pool/cilium-pool-operator/test/map/plan"
)

const (
	width, height = 1280, 860
	patience      = 3 * time.Minute
)

// scene is a picture: of the cluster, or of a made-up plan of so many blocks.
type scene struct {
	name, hash string
	blocks     int
	height     int64
	do         []chromedp.Action
}

func scenes() []scene {
	point := []chromedp.Action{chromedp.Focus("canvas.map"), chromedp.KeyEvent("n"), chromedp.KeyEvent(kb.ArrowRight), chromedp.WaitVisible("#card li")}
	return []scene{
		{name: "map", do: point},
		{name: "map-nodes", hash: "by=node&layout=hilbert", do: point},
		{name: "map-4096", hash: "by=utilisation", blocks: 4096, height: 560},
		{name: "map-100000", hash: "by=phase", blocks: 100_000, height: 720},
	}
}

func main() {
	plugin := flag.String("plugin", ".cache/bin/kubectl-cilium_pool", "the plugin")
	out := flag.String("out", "docs/images", "folder for the pictures")
	only := flag.String("only", "", "the scenes to make, by what their names contain")
	flag.Parse()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	err := run(ctx, *plugin, *out, *only)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, plugin, out, only string) error {
	cluster, end, err := serve(ctx, plugin)
	if err != nil {
		return err
	}
	defer end()
	for _, s := range scenes() {
		if !strings.Contains(s.name, only) {
			continue
		}
		url := cluster
		if s.blocks > 0 {
			made := httptest.NewServer(addressmap.Handler(addressmap.NewBoard(plan.Of(s.blocks)), "made-up"))
			defer made.Close()
			url = made.URL + "/made-up/"
		}
		for _, theme := range []string{"light", "dark"} {
			if err := shoot(ctx, s, url, theme, filepath.Join(out, s.name+"-"+theme+".png")); err != nil {
				return fmt.Errorf("%s, %s: %w", s.name, theme, err)
			}
		}
	}
	return nil
}

// serve runs the plugin, and returns the address that it prints.
func serve(ctx context.Context, plugin string) (string, func(), error) {
	cmd := exec.CommandContext(ctx, plugin, "map")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	end := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		end()
		return "", nil, fmt.Errorf("%s map printed no address: %w", plugin, err)
	}
	return strings.TrimSpace(line), end, nil
}

func shoot(ctx context.Context, s scene, url, theme, path string) error {
	high := int64(height)
	if s.height > 0 {
		high = s.height
	}
	page, stop, err := browser.Open(ctx, width, high)
	if err != nil {
		return err
	}
	defer stop()
	if err := page.Theme(theme); err != nil {
		return err
	}
	actions := append([]chromedp.Action{chromedp.Navigate(url + "#" + s.hash), chromedp.WaitVisible("canvas.map")}, s.do...)
	if err := page.Run(append(actions, browser.Painted())...); err != nil {
		return err
	}
	png, err := page.Shot()
	if err != nil {
		return err
	}
	if faults := page.Faults(); len(faults) > 0 {
		return fmt.Errorf("the page complains: %s", strings.Join(faults, "; "))
	}
	fmt.Println(path)
	return os.WriteFile(path, png, 0o644)
}
