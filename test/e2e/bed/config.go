//go:build linux

package bed

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	chartDir       = "chart"
	configTemplate = "templates/cilium-configmap.yaml"
	configName     = "cilium-config"
	exampleValues  = "cilium-values.yaml"
)

//go:embed values.yaml vxlan.yaml
var ownValues embed.FS

// makeConfig has Cilium's own chart make the agents' configuration of the
// values that a user is given, and writes it as a pod mounts it: a folder with
// a file for each key.
func (b *Bed) makeConfig(ctx context.Context) error {
	files, err := b.valuesFiles()
	if err != nil {
		return err
	}
	argv := []string{
		b.opts.Helm, "template", "cilium", filepath.Join(b.opts.CiliumDir, chartDir),
		"--namespace", metav1.NamespaceSystem, "--show-only", configTemplate, "--set", "ipam.mode=" + b.opts.IPAM,
	}
	for _, f := range files {
		argv = append(argv, "--values", f)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("render Cilium's chart: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	if b.config, err = configData(out); err != nil {
		return fmt.Errorf("render Cilium's chart: %w", err)
	}
	if err := os.MkdirAll(b.configDir(), 0o755); err != nil {
		return fmt.Errorf("write the agents' configuration: %w", err)
	}
	for key, value := range b.config {
		if err := os.WriteFile(filepath.Join(b.configDir(), key), []byte(value), 0o644); err != nil {
			return fmt.Errorf("write the agents' configuration: %w", err)
		}
	}
	return nil
}

func (b *Bed) configDir() string { return filepath.Join(b.opts.Logs, configName) }

// valuesFiles are the values files, of which later ones win.
func (b *Bed) valuesFiles() ([]string, error) {
	var files []string
	for _, name := range append([]string{exampleValues}, b.opts.Values...) {
		files = append(files, filepath.Join(b.opts.Examples, name))
	}
	own := []string{"values.yaml"}
	if !b.opts.Native {
		own = append(own, "vxlan.yaml")
	}
	for _, name := range own {
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

// configData finds the agents' configuration in what the chart made.
func configData(rendered []byte) (map[string]string, error) {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), len(rendered))
	for {
		m := &corev1.ConfigMap{}
		if err := documents.Decode(m); errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("no ConfigMap %s in it", configName)
		} else if err != nil {
			return nil, err
		}
		if m.Name == configName {
			return m.Data, nil
		}
	}
}

// enabled tells whether the agents' configuration has the key set to true.
func (b *Bed) enabled(key string) bool { return b.config[key] == "true" }
