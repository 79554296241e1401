// Command image packs a static binary into a container image without a Docker daemon and without a
// registry: one layer with the binary, others beside it, and licences if given. The same files make the same image, byte for byte.
//
//	image -binary FILE -tag NAME:TAG -platform linux/amd64 -out FILE.tar
//	image -binary FILE,FILE -tag NAME:TAG -platform linux/amd64,linux/arm64 -layout FOLDER
//	image -folder FOLDER -tag NAME:TAG,NAME:TAG -platform linux/amd64 -out FILE.tar
//
// docker load, podman load, ctr images import, kind load image-archive and
// crane push take the file. -folder packs a whole tree of files, for the real
// cluster of test/cluster. -layout writes images of several platforms as one
// index, in an OCI image layout, which crane push and skopeo take.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nonroot is the user of distroless images.
const nonroot = 65532

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	fs := flag.NewFlagSet("image", flag.ContinueOnError)
	binaries := fs.String("binary", "", "static binary to pack; it becomes the entry point. Several: comma-separated, as the platforms")
	beside := fs.String("beside", "", "another static binary of the image. Several: as for -binary")
	tag := fs.String("tag", "", "name and tag of the image")
	platforms := fs.String("platform", "", "operating system and architecture, as in linux/arm64")
	revision := fs.String("revision", "", "commit the binary was built from")
	licenses := fs.String("licenses", "", "folder of licences, which the image has in /licenses. Several: as for -binary")
	source := fs.String("source", "", "where its source is")
	out := fs.String("out", "", "file to write, of one platform")
	folder := fs.String("layout", "", "folder to write an OCI image layout to")
	tree := fs.String("folder", "", "folder to pack as it is, instead of a binary")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *tree != "" {
		return packTree(*tree, *tag, *platforms, *out)
	}
	ref, err := name.NewTag(*tag, name.WithDefaultRegistry(""))
	if err != nil {
		return fmt.Errorf("-tag: %w", err)
	}
	images, err := buildAll(strings.Split(*binaries, ","), strings.Split(*beside, ","), strings.Split(*licenses, ","), strings.Split(*platforms, ","), map[string]string{
		"org.opencontainers.image.version":  ref.TagStr(),
		"org.opencontainers.image.revision": *revision,
		"org.opencontainers.image.source":   *source,
		"org.opencontainers.image.licenses": "Apache-2.0",
	})
	if err != nil {
		return err
	}
	var digest v1.Hash
	switch {
	case *folder != "":
		digest, err = writeLayout(*folder, images)
	case len(images) == 1:
		digest, err = writeTar(*out, ref, images[0].Add.(v1.Image))
	default:
		err = errors.New("-out takes one platform: write several with -layout")
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s %s\n", *out+*folder, ref, digest)
	return nil
}

// buildAll makes an image per platform.
func buildAll(binaries, beside, licenses, platforms []string, labels map[string]string) ([]mutate.IndexAddendum, error) {
	if len(binaries) != len(platforms) {
		return nil, fmt.Errorf("there are %d of -binary and %d of -platform: give as many", len(binaries), len(platforms))
	}
	if licenses[0] == "" {
		licenses = make([]string, len(binaries))
	}
	if beside[0] == "" {
		beside = make([]string, len(binaries))
	}
	if len(beside) != len(binaries) {
		return nil, fmt.Errorf("there are %d of -beside and %d of -binary: give as many", len(beside), len(binaries))
	}
	if len(licenses) != len(binaries) {
		return nil, fmt.Errorf("there are %d of -licenses and %d of -binary: give as many", len(licenses), len(binaries))
	}
	var images []mutate.IndexAddendum
	for i, platform := range platforms {
		p, err := v1.ParsePlatform(platform)
		if err != nil || p.OS == "" || p.Architecture == "" {
			return nil, fmt.Errorf("-platform is %q: write linux/amd64 or the like", platform)
		}
		files, err := rootFS(binaries[i], beside[i], licenses[i])
		if err != nil {
			return nil, fmt.Errorf("packing files: %w", err)
		}
		img, err := build(filepath.Base(binaries[i]), files, *p, labels)
		if err != nil {
			return nil, err
		}
		images = append(images, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: p}})
	}
	return images, nil
}

func writeTar(file string, ref name.Tag, img v1.Image) (v1.Hash, error) {
	if err := tarball.WriteToFile(file, ref, img); err != nil {
		return v1.Hash{}, fmt.Errorf("writing %s: %w", file, err)
	}
	return img.Digest()
}

// writeLayout writes one index of all images into a folder of its own.
func writeLayout(folder string, images []mutate.IndexAddendum) (v1.Hash, error) {
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), images...)
	if err := os.RemoveAll(folder); err != nil {
		return v1.Hash{}, err
	}
	if _, err := layout.Write(folder, index); err != nil {
		return v1.Hash{}, fmt.Errorf("writing %s: %w", folder, err)
	}
	return index.Digest()
}

// build makes the image of a layer. No CA certificates are in it: the one server that the
// operator talks to has its CA beside the ServiceAccount's token.
func build(command string, files []byte, p v1.Platform, labels map[string]string) (v1.Image, error) {
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("making the layer: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(base, mutate.Addendum{
		Layer: layer, History: v1.History{Created: epoch(), CreatedBy: "hack/image"},
	})
	if err != nil {
		return nil, fmt.Errorf("adding the layer: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	config.Architecture, config.OS, config.Variant = p.Architecture, p.OS, p.Variant
	config.Created = epoch()
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", nonroot, nonroot),
		Entrypoint: []string{"/" + command},
		WorkingDir: "/",
		Labels:     labels,
	}
	return mutate.ConfigFile(img, config)
}

// epoch stands for the time of the build, which would differ with each.
func epoch() v1.Time { return v1.Time{Time: time.Unix(0, 0).UTC()} }

// rootFS is the layer as a tar file: the user's name, the binary, and unless they are "" another one and the files of a
// folder of licences.
func rootFS(binary, beside, licenses string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(name string, mode int64, content []byte) error {
		kind := byte(tar.TypeReg)
		if strings.HasSuffix(name, "/") {
			kind = tar.TypeDir
		}
		header := &tar.Header{Typeflag: kind, Name: name, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	errs := []error{
		add("etc/", 0o755, nil),
		add("etc/group", 0o644, fmt.Appendf(nil, "nonroot:x:%d:\n", nonroot)),
		add("etc/passwd", 0o644, fmt.Appendf(nil, "nonroot:x:%d:%d::/:/sbin/nologin\n", nonroot, nonroot)),
	}
	for _, path := range []string{binary, beside} {
		if path == "" {
			continue
		}
		content, err := os.ReadFile(path)
		errs = append(errs, err, add(filepath.Base(path), 0o755, content))
	}
	if licenses != "" {
		entries, err := os.ReadDir(licenses)
		errs = append(errs, err, add("licenses/", 0o755, nil))
		for _, e := range entries {
			content, err := os.ReadFile(filepath.Join(licenses, e.Name()))
			errs = append(errs, err, add("licenses/"+e.Name(), 0o644, content))
		}
	}
	err := errors.Join(append(errs, w.Close())...)
	return out.Bytes(), err
}
