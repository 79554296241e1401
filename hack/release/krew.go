package main

import (
	"context"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// krewPlugin is krew's manifest (sigs.k8s.io/krew, pkg/index/types.go).
type krewPlugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       krewSpec          `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Caveats          string         `json:"caveats,omitempty"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	Sha256   string       `json:"sha256"`
	Bin      string       `json:"bin"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

const krewName = "cilium-pool"

// writeKrew writes the manifest for krew's index.
func (r *release) writeKrew(context.Context) error {
	p := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2",
		Kind:       "Plugin",
		Metadata:   map[string]string{"name": krewName},
		Spec: krewSpec{
			Version:          r.version,
			Homepage:         repository,
			ShortDescription: "Shows who holds which pod addresses, and why",
			Description: `In a cluster where cilium-pool-operator gives out pod addresses (Cilium in
crd, multi-pool or kubernetes mode): which node holds which block, what would make it grow or shrink,
who has an address, what an edit of a pool would do, and prefixes for routers.
All commands but drain and migrate only read.
`,
			Caveats: "The cluster needs cilium-pool-operator: " + repository + "\n",
		},
	}
	for _, on := range r.plugins {
		sum, err := sha256Of(filepath.Join(r.out, archiveName(on)))
		if err != nil {
			return err
		}
		bin := pluginName
		if on.os == "windows" {
			bin += ".exe"
		}
		p.Spec.Platforms = append(p.Spec.Platforms, krewPlatform{
			Selector: krewSelector{MatchLabels: map[string]string{"os": on.os, "arch": on.arch}},
			URI:      repository + "/releases/download/" + r.version + "/" + archiveName(on),
			Sha256:   sum,
			Bin:      bin,
		})
	}
	body, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, krewName+".yaml"), body, 0o644)
}
