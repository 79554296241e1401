package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// One index with an image per platform, the same from the same binaries. Each holds little
// more than the binary and licences, and runs it as an unprivileged user.
func TestLayout(t *testing.T) {
	var digests []string
	for range 2 {
		dir := t.TempDir()
		binary := filepath.Join(dir, "operator")
		if err := os.WriteFile(binary, []byte("binary"), 0o755); err != nil {
			t.Fatal(err)
		}
		beside := filepath.Join(dir, "cni-plugin")
		if err := os.WriteFile(beside, []byte("another binary"), 0o755); err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join(dir, "layout")
		licenses := filepath.Join(dir, "licenses")
		if err := os.MkdirAll(licenses, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(licenses, "LICENSE"), []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
		err := run([]string{"-binary", binary + "," + binary, "-beside", beside + "," + beside, "-licenses", licenses + "," + licenses, "-platform", "linux/amd64,linux/arm64", "-tag", "r.example/o:v1", "-layout", folder})
		if err != nil {
			t.Fatal(err)
		}
		path, err := layout.FromPath(folder)
		if err != nil {
			t.Fatal(err)
		}
		index, err := path.ImageIndex()
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		var platforms []string
		for _, m := range manifest.Manifests {
			img, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			if m.MediaType != types.OCIManifestSchema1 {
				t.Errorf("the index calls an image %s", m.MediaType)
			}
			config, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if config.Architecture != m.Platform.Architecture {
				t.Errorf("the index says %s of an image for %s", m.Platform, config.Architecture)
			}
			if got := config.Config; got.Entrypoint[0] != "/operator" || got.User != "65532:65532" {
				t.Errorf("entry point is %v, user %s", got.Entrypoint, got.User)
			}
			var names []string
			for content := tar.NewReader(mutate.Extract(img)); ; {
				file, err := content.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, file.Name)
			}
			if want := []string{"etc", "etc/group", "etc/passwd", "operator", "cni-plugin", "licenses", "licenses/LICENSE"}; !slices.Equal(names, want) {
				t.Errorf("the image has %v, want %v", names, want)
			}
			platforms = append(platforms, m.Platform.String())
		}
		if len(platforms) != 2 || platforms[0] != "linux/amd64" || platforms[1] != "linux/arm64" {
			t.Errorf("platforms are %v", platforms)
		}
		digest, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest.String())
	}
	if digests[0] != digests[1] {
		t.Errorf("the same binaries gave %v", digests)
	}
}

func TestWrongCommandLines(t *testing.T) {
	for name, args := range map[string][]string{
		"no tag":             {"-binary", "x", "-platform", "linux/amd64"},
		"platforms missing":  {"-binary", "x,y", "-platform", "linux/amd64", "-tag", "r/o:v1"},
		"beside missing":     {"-binary", "main.go,main.go", "-beside", "main.go", "-platform", "linux/amd64,linux/arm64", "-tag", "r/o:v1", "-layout", "x"},
		"licenses missing":   {"-binary", "main.go", "-licenses", "none", "-platform", "linux/amd64", "-tag", "r/o:v1", "-out", "x"},
		"no such platform":   {"-binary", "x", "-platform", "amd64", "-tag", "r/o:v1"},
		"binary not there":   {"-binary", "none", "-platform", "linux/amd64", "-tag", "r/o:v1"},
		"two into one image": {"-binary", "main.go,main.go", "-platform", "linux/amd64,linux/arm64", "-tag", "r/o:v1", "-out", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(args); err == nil {
				t.Error("no error")
			}
		})
	}
}
