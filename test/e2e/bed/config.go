//go:build linux

package bed

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	chartDir       = "chart"
	configTemplate = "templates/cilium-configmap.yaml"
	configName     = "cilium-config"
	exampleValues  = "cilium-values.yaml"
	beforeValues   = "before.yaml"
	crdMode        = "crd"
	// quickReports shortens a move, which waits for agents' reports many times.
	quickReports = "ipam.ciliumNodeUpdateRate=3s"
)

//go:embed values.yaml vxlan.yaml before.yaml
var ownValues embed.FS

// makeConfig renders the agents' configuration with Cilium's own chart from the example
// values, and writes it as a pod mounts it: a folder with a file for each key. A cluster that
// has not moved yet starts with its own values.
func (b *Bed) makeConfig(ctx context.Context) error {
	own := []string{"values.yaml"}
	if !b.opts.Native {
		own = append(own, "vxlan.yaml")
	}
	own, err := b.ownFiles(own...)
	if err != nil {
		return err
	}
	files, set := b.given(b.opts.Values), append([]string{"ipam.mode=" + b.opts.IPAM}, b.opts.Set...)
	if b.moves() {
		if b.moved, err = b.render(ctx, append(files, own...), "ipam.mode="+b.opts.Then, quickReports); err != nil {
			return err
		}
		files, set = b.given(nil), append(set, quickReports)
	}
	if b.opts.Before {
		if files, err = b.ownFiles(beforeValues); err != nil {
			return err
		}
	}
	if b.config, err = b.render(ctx, append(files, own...), set...); err != nil {
		return err
	}
	return writeConfig(b.configDir(), b.config)
}

// given returns the files of the example values, with others on top.
func (b *Bed) given(on []string) []string {
	files := []string{filepath.Join(b.opts.Examples, exampleValues)}
	for _, name := range on {
		files = append(files, filepath.Join(b.opts.Examples, name))
	}
	return files
}

// render returns the agents' configuration for values files and single values. Later files
// take precedence.
func (b *Bed) render(ctx context.Context, files []string, set ...string) (map[string]string, error) {
	argv := []string{
		b.opts.Helm, "template", "cilium", filepath.Join(b.opts.CiliumDir, chartDir),
		"--namespace", metav1.NamespaceSystem, "--show-only", configTemplate, "--set", strings.Join(set, ","),
	}
	for _, f := range files {
		argv = append(argv, "--values", f)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("render Cilium's chart: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	config, err := configData(string(out))
	if err != nil {
		return nil, fmt.Errorf("render Cilium's chart: %w", err)
	}
	return config, nil
}

// writeConfig writes a configuration as a pod mounts a ConfigMap, into a new folder.
func writeConfig(dir string, config map[string]string) error {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	for key, value := range config {
		if err := os.WriteFile(filepath.Join(dir, key), []byte(value), 0o644); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
	}
	return nil
}

func (b *Bed) configDir() string { return filepath.Join(b.opts.Logs, configName) }

// ownFiles writes values files of the bed to where Helm finds them.
func (b *Bed) ownFiles(names ...string) ([]string, error) {
	var files []string
	for _, name := range names {
		data, err := ownValues.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read the bed's values: %w", err)
		}
		path := filepath.Join(b.opts.Logs, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return nil, fmt.Errorf("write the bed's values: %w", err)
		}
		files = append(files, path)
	}
	return files, nil
}

// configData finds the agents' configuration in the rendered chart.
func configData(rendered string) (map[string]string, error) {
	objects, err := harness.Objects(rendered)
	for _, o := range objects {
		if o.GetName() == configName {
			data, _, err := unstructured.NestedStringMap(o.Object, "data")
			return data, err
		}
	}
	return nil, errors.Join(err, fmt.Errorf("no ConfigMap %s in it", configName))
}

// enabled reports whether the agents' configuration has the key set to true.
func (b *Bed) enabled(key string) bool { return b.config[key] == "true" }
