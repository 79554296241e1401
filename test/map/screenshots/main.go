// Command screenshots takes the screenshots in docs/images: of the report about a made-up cluster, and of the map of
// the cluster in KUBECONFIG. make screenshots starts a cluster for it.
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

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/observe"
	"github.com/cilium-pool/cilium-pool-operator/test/map/browser"
	"github.com/cilium-pool/cilium-pool-operator/test/map/madeup"
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
	if err := o.shootReport(ctx); err != nil {
		return fmt.Errorf("report: %w", err)
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
		if err := o.save(s.name, picture); err != nil {
			return err
		}
	}
	return nil
}

// most is the largest size of a picture in bytes, as each clone of the repository has it.
const most = 200_000

func (o options) save(name string, picture []byte) error {
	path := filepath.Join(o.out, name+".png")
	if len(picture) > most {
		return fmt.Errorf("%s has %d bytes, above %d: show less", path, len(picture), most)
	}
	fmt.Println(path)
	return os.WriteFile(path, picture, 0o644)
}

func (o options) shootReport(ctx context.Context) error {
	c, err := madeup.Cluster()
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "*.html")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if err := errors.Join(observe.WriteHTML(file, c, nil, "production", "v0.1.0"), file.Close()); err != nil {
		return err
	}
	page, stop, err := browser.Open(ctx, 1120, 1340)
	if err != nil {
		return err
	}
	defer stop()
	if err := errors.Join(page.Theme("light"), page.Do(chromedp.Navigate("file://"+file.Name())), page.Painted()); err != nil {
		return err
	}
	picture, err := take(page)
	if err != nil {
		return err
	}
	return o.save("report-light", picture)
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
	return take(page)
}

// take returns a picture of a page that works.
func take(page *browser.Page) ([]byte, error) {
	picture, err := page.Shot()
	if faults := page.Faults(); len(faults) > 0 {
		return nil, fmt.Errorf("the page complains: %s", strings.Join(faults, "; "))
	}
	return picture, err
}
