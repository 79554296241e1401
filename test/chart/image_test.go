package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// The image holds little more than the operator, runs it as an unprivileged user, and
// is reproducible.
func TestImage(t *testing.T) {
	binary := operator(t)
	first, again := packImage(t, binary), packImage(t, binary)
	if !bytes.Equal(first, again) {
		t.Error("two images of one binary differ")
	}
	files := untar(t, first)
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	parse(t, files["manifest.json"], &manifest)
	var image struct {
		Architecture, OS string
		Config           struct {
			User       string
			Entrypoint []string
		} `json:"config"`
	}
	parse(t, files[manifest[0].Config], &image)
	if diff := cmp.Diff([]string{"example.org/operator:v1"}, manifest[0].RepoTags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	if image.OS != "linux" || image.Architecture != runtime.GOARCH || image.Config.User != "65532:65532" {
		t.Errorf("image is %+v", image)
	}
	if len(manifest[0].Layers) != 1 {
		t.Fatalf("%d layers", len(manifest[0].Layers))
	}
	compressed, err := gzip.NewReader(bytes.NewReader(files[manifest[0].Layers[0]]))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(compressed)
	if err != nil {
		t.Fatal(err)
	}
	content, ok := untar(t, layer)[strings.TrimPrefix(image.Config.Entrypoint[0], "/")]
	if !ok {
		t.Fatalf("the entry point %v is not in the layer", image.Config.Entrypoint)
	}
	path := filepath.Join(t.TempDir(), "operator")
	harness.Must(t, os.WriteFile(path, content, 0o700))
	out, err := exec.CommandContext(t.Context(), path, "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "cilium-pool-operator ") {
		t.Errorf("--version of the packed binary: %v\n%s", err, out)
	}
}

func packImage(t *testing.T, binary string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image.tar")
	cmd := exec.CommandContext(t.Context(), "go", "run", "-C", root+"/hack/image", ".",
		"-binary", binary, "-tag", "example.org/operator:v1", "-platform", "linux/"+runtime.GOARCH, "-out", out)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func untar(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	if !bytes.HasSuffix(data, make([]byte, 1024)) {
		t.Error("the tar file lacks its end, which archive/tar forgives and others do not")
	}
	files := map[string][]byte{}
	for reader := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}

func parse(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
}

// Moving a tag of a base image must not change the build.
func TestBaseImagesArePinned(t *testing.T) {
	data, err := os.ReadFile(root + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	bases := regexp.MustCompile(`(?m)^FROM (?:--\S+ )*(\S+)`).FindAllStringSubmatch(string(data), -1)
	if len(bases) == 0 {
		t.Fatal("the Dockerfile has no base image")
	}
	for _, base := range bases {
		if base[1] != "scratch" && !regexp.MustCompile(`@sha256:[0-9a-f]{64}$`).MatchString(base[1]) {
			t.Errorf("base image %s has no digest", base[1])
		}
	}
}
