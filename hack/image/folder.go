package main

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// searchPath of programs in an image made of a folder.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// layerCompression favors time over size: such images stay on this machine.
const layerCompression = 1

// packTree writes the image of a folder to out, under each of the tags.
func packTree(folder, tags, platform, out string) error {
	p, err := v1.ParsePlatform(platform)
	if err != nil || p.OS == "" || p.Architecture == "" {
		return fmt.Errorf("-platform is %q: write linux/amd64 or the like", platform)
	}
	scratch := out + ".layer"
	defer os.Remove(scratch)
	img, err := fromFolder(folder, scratch, *p)
	if err != nil {
		return err
	}
	images := map[name.Tag]v1.Image{}
	for _, tag := range strings.Split(tags, ",") {
		ref, err := name.NewTag(tag, name.WithDefaultRegistry(""))
		if err != nil {
			return fmt.Errorf("-tag: %w", err)
		}
		images[ref] = img
	}
	if err := tarball.MultiWriteToFile(out, images); err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	fmt.Printf("%s: %s\n", out, tags)
	return nil
}

// fromFolder makes an image with one layer, the content of folder with its modes, owners and links.
// It packs the layer into scratch, a folder that must stay until the image is written.
func fromFolder(folder, scratch string, p v1.Platform) (v1.Image, error) {
	if err := packFolder(folder, scratch); err != nil {
		return nil, fmt.Errorf("packing %s: %w", folder, err)
	}
	layer, err := tarball.LayerFromFile(scratch, tarball.WithCompressionLevel(layerCompression))
	if err != nil {
		return nil, fmt.Errorf("making the layer: %w", err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, fmt.Errorf("adding the layer: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Variant = p.Architecture, p.OS, p.Variant
	config.Created = epoch()
	config.Config.Env = []string{searchPath}
	return mutate.ConfigFile(img, config)
}

func packFolder(folder, out string) (err error) {
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	buffer := bufio.NewWriterSize(file, 1<<20)
	w := tar.NewWriter(buffer)
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		return packEntry(w, folder, path, entry)
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return buffer.Flush()
}

// packEntry adds a file, link or folder. Devices and sockets are left out: a
// container has its own.
func packEntry(w *tar.Writer, folder, path string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeDevice|fs.ModeSocket|fs.ModeNamedPipe) != 0 {
		return nil
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	if header.Name, err = filepath.Rel(folder, path); err != nil {
		return err
	}
	if info.IsDir() {
		header.Name += "/"
	}
	owner := info.Sys().(*syscall.Stat_t)
	header.Uid, header.Gid, header.Uname, header.Gname = int(owner.Uid), int(owner.Gid), "", ""
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(w, file)
	return err
}
