//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The modes of Cilium's IPAM, as its values name them.
const (
	crdMode        = "crd"
	multiPoolMode  = "multi-pool"
	kubernetesMode = "kubernetes"
)

// startBeside brings up the bed in a mode, with the example values for it and more of their
// files on top, and starts Cilium's own operator.
func (e *env) startBeside(ctx context.Context, mode string, more ...string) error {
	e.options.IPAM, e.options.Values = mode, append([]string{ciliumValues(mode)}, more...)
	if err := e.start(ctx); err != nil {
		return err
	}
	args, err := e.ciliumOperatorArgs(mode)
	if err != nil {
		return err
	}
	if _, err := e.StartCiliumOperator(ctx, args...); err != nil {
		return err
	}
	return e.extraObjects(ctx, mode)
}

func ciliumValues(mode string) string { return "cilium-values-" + mode + ".yaml" }

// ciliumOperatorArgs returns the flags of Cilium's operator in a mode, in addition to its
// configuration.
func (e *env) ciliumOperatorArgs(mode string) ([]string, error) {
	var values struct {
		Operator struct {
			ExtraArgs []string `json:"extraArgs"`
		} `json:"operator"`
	}
	err := e.example(ciliumValues(mode), &values)
	return values.Operator.ExtraArgs, err
}

// extraObjects creates the objects that our own chart adds in a mode.
func (e *env) extraObjects(ctx context.Context, mode string) error {
	var values struct {
		ExtraObjects []map[string]any `json:"extraObjects"`
	}
	if err := e.example("values-"+mode+".yaml", &values); err != nil {
		return err
	}
	for _, o := range values.ExtraObjects {
		object := &unstructured.Unstructured{Object: o}
		if err := e.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// example reads one of the example files.
func (e *env) example(name string, into any) error {
	data, err := os.ReadFile(filepath.Join(e.options.Examples, name))
	if err != nil {
		return fmt.Errorf("read example: %w", err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read example %s: %w", name, err)
	}
	return nil
}
