package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"sigs.k8s.io/yaml"
)

func sample(t *testing.T, more ...string) *release {
	t.Helper()
	dir := t.TempDir()
	args := []string{"-version", "v1.2.3", "-commit", "abc", "-epoch", "1700000000", "-root", dir, "-out", dir, "-work", dir, "-helm", "helm", "-image", "r.example/o"}
	r, err := parse(append(args, more...))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParse(t *testing.T) {
	r := sample(t)
	if len(r.plugins) != 6 || len(r.operators) != 2 {
		t.Errorf("all platforms are %v and %v, want six and two", r.plugins, r.operators)
	}
	r = sample(t, "-only", "linux/amd64,windows/arm64")
	if want := []platform{{"linux", "amd64"}, {"windows", "arm64"}}; !slices.Equal(r.plugins, want) {
		t.Errorf("-only gives plugins for %v, want %v", r.plugins, want)
	}
	for name, args := range map[string][]string{
		"no version":        {},
		"not semantic":      {"-version", "1.2"},
		"no v":              {"-version", "1.2.3"},
		"no folders":        {"-version", "v1.2.3"},
		"no linux platform": {"-version", "v1.2.3", "-root", "x", "-out", "x", "-work", "x", "-helm", "x", "-image", "x", "-only", "darwin/arm64"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(args); err == nil {
				t.Error("no error")
			}
		})
	}
}

// The order of files and the time of packing leave no trace.
func TestArchivesAreTheSame(t *testing.T) {
	dir := t.TempDir()
	files := []file{{"b", 0o755, []byte("two")}, {"a", 0o644, []byte("one")}}
	var packed [][]byte
	for i := range 2 {
		slices.Reverse(files)
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := writeArchive(path, files, time.Unix(1700000000, 0)); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		packed = append(packed, content)
	}
	if !bytes.Equal(packed[0], packed[1]) {
		t.Error("two archives of the same files differ")
	}
	got, err := readArchive(filepath.Join(dir, "0"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].name != "a" || string(got[1].content) != "two" {
		t.Errorf("read back: %v", got)
	}
}

// The rules of krew's own check: internal/index/validation/validate.go,
// ValidatePlugin, of v0.4.5. They are written down here because Go's proxy does
// not have krew's module.
func TestKrewManifest(t *testing.T) {
	r := sample(t)
	for _, p := range r.plugins {
		if err := writeArchive(filepath.Join(r.out, archiveName(p)), []file{{pluginName, 0o755, []byte(p.String())}}, r.time); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.writeKrew(t.Context()); err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(filepath.Join(r.out, "cilium-pool.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var m krewPlugin
	if err := yaml.UnmarshalStrict(body, &m); err != nil {
		t.Fatal(err)
	}
	rules := map[string]bool{
		"apiVersion":  m.APIVersion == "krew.googlecontainertools.github.com/v1alpha2",
		"kind":        m.Kind == "Plugin",
		"name":        regexp.MustCompile(`^[\w-]+$`).MatchString(m.Metadata["name"]) && m.Metadata["name"] == "cilium-pool",
		"short":       m.Spec.ShortDescription != "" && !strings.ContainsAny(m.Spec.ShortDescription, "\r\n"),
		"short, 50":   len(m.Spec.ShortDescription) <= 50, // of the index's own naming guide
		"version":     strings.HasPrefix(m.Spec.Version, "v") && semver.MatchString(m.Spec.Version),
		"platforms":   len(m.Spec.Platforms) == 6,
		"description": m.Spec.Description != "",
	}
	for rule, holds := range rules {
		if !holds {
			t.Errorf("breaks krew's rule %q:\n%s", rule, body)
		}
	}
	seen := map[string]bool{}
	for _, p := range m.Spec.Platforms {
		labels := p.Selector.MatchLabels
		if len(labels) != 2 || labels["os"] == "" || labels["arch"] == "" || seen[labels["os"]+labels["arch"]] {
			t.Errorf("selector %v: must have os and arch alone, once", labels)
		}
		seen[labels["os"]+labels["arch"]] = true
		name := p.URI[strings.LastIndexByte(p.URI, '/')+1:]
		sum, err := sha256Of(filepath.Join(r.out, name))
		if err != nil || sum != p.Sha256 || !regexp.MustCompile(`^[a-f0-9]{64}$`).MatchString(p.Sha256) {
			t.Errorf("%s: sha256 is %s, the file's %s (%v)", p.URI, p.Sha256, sum, err)
		}
		if want := labels["os"] == "windows"; strings.HasSuffix(p.Bin, ".exe") != want || !strings.HasPrefix(p.Bin, "kubectl-cilium_pool") {
			t.Errorf("bin for %s is %s", labels["os"], p.Bin)
		}
	}
}

func TestSBOM(t *testing.T) {
	r := sample(t)
	info := &buildinfo.BuildInfo{
		GoVersion: "go1.26.1", Path: "example.org/m/cmd/x", Main: debug.Module{Path: "example.org/m", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "example.org/Old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/new", Version: "v2.0.0", Sum: "h1:x"}},
			{Path: "example.org/b", Version: "v0.1.0+incompatible"},
			{Path: "example.org/m/api", Version: "v0.0.0", Replace: &debug.Module{Path: "./api", Version: "(devel)"}},
		},
	}
	l := &licenses{ids: map[string][]string{"example.org/new": {"MIT"}}}
	bom := r.bom(info, "x", "00ff", l)
	var first, second bytes.Buffer
	for _, to := range []*bytes.Buffer{&first, &second} {
		if err := cdx.NewBOMEncoder(to, cdx.BOMFileFormatJSON).EncodeVersion(r.bom(info, "x", "00ff", l), cdx.SpecVersion1_6); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() || !json.Valid(first.Bytes()) {
		t.Error("twice is not the same JSON")
	}
	var got []string
	for _, c := range *bom.Components {
		got = append(got, c.PackageURL)
	}
	if of := (*bom.Components)[2].Licenses; of == nil || (*of)[0].License.ID != "MIT" {
		t.Errorf("the licence of example.org/new is %v, want MIT", of)
	}
	want := []string{"pkg:golang/example.org/b@v0.1.0+incompatible", "pkg:golang/example.org/m/api@v1.2.3", "pkg:golang/example.org/new@v2.0.0", "pkg:golang/stdlib@1.26.1"}
	if !slices.Equal(got, want) {
		t.Errorf("components are %q, want %q", got, want)
	}
	if !regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(bom.SerialNumber) {
		t.Errorf("serial number is %s", bom.SerialNumber)
	}
	if main := bom.Metadata.Component; main.Version != "v1.2.3" || (*main.Hashes)[0].Value != "00ff" {
		t.Errorf("the binary is told as %+v", main)
	}
}

// Each binary has the licences of all its modules, and all of them are allowed.
func TestLicenses(t *testing.T) {
	r := &release{root: filepath.Join("..", "..")}
	l, err := r.readLicenses(t.Context(), platform{"linux", "amd64"}, operatorName, cniPluginName)
	if err != nil {
		t.Fatal(err)
	}
	for module, id := range map[string]string{
		"github.com/cilium/cilium": "Apache-2.0", "github.com/spf13/pflag": "BSD-3-Clause", "go.uber.org/zap": "MIT", "stdlib": "BSD-3-Clause",
	} {
		if !slices.Contains(l.ids[module], id) {
			t.Errorf("the licences of %s are %v, want %s", module, l.ids[module], id)
		}
	}
	// Code of Go inside a module of Kubernetes.
	for _, text := range []string{"Copyright 2009 The Go Authors", "k8s.io/apimachinery v", "Uber Technologies"} {
		if !bytes.Contains(l.notice(operatorName), []byte(text)) {
			t.Errorf("%s does not have %q", thirdParty, text)
		}
	}
	for _, os := range []string{"linux", "darwin", "windows"} {
		if _, err := r.readLicenses(t.Context(), platform{os, "amd64"}, pluginName); err != nil {
			t.Error(err)
		}
	}
}

func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		ids  []string
		says string
	}{
		"allowed": {[]string{"Apache-2.0", "MIT"}, ""},
		"none":    {nil, "no licence that is known"},
		"another": {[]string{"Apache-2.0", "AGPL-3.0"}, "has licence AGPL-3.0"},
	} {
		t.Run(name, func(t *testing.T) {
			err := judge("example.org/m v1.0.0", test.ids)
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("error is %v, want %q", err, test.says)
			}
		})
	}
}

func TestChecksums(t *testing.T) {
	r := sample(t)
	if err := os.WriteFile(filepath.Join(r.out, "a"), []byte("one"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.writeChecksums(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(r.out, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	// As printf one | sha256sum says.
	if want := "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed  a\n"; string(got) != want {
		t.Errorf("checksums are %q, want %q", got, want)
	}
}
