//go:build linux

package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/box"
)

// templateBox is the box that builds a template.
const templateBox = "template"

// A node's disk starts as a copy of a template: a disk on which containerd has already
// unpacked the images. The copy has hard links to the template's files, as containerd rewrites
// none of them but its databases; so a node costs a second and a few megabytes.

// makeDisk copies the template.
func (c *Cluster) makeDisk(ctx context.Context, disk string) error {
	unlock, err := lockFolder(c.CacheDir)
	if err != nil {
		return err
	}
	defer unlock()
	template, err := c.template(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(disk), 0o755); err != nil {
		return err
	}
	if err := linked(template, disk); err != nil {
		return err
	}
	return ownDatabases(disk)
}

// lockFolder keeps other clusters, which may share the cache, from replacing the
// template while this one makes or copies it.
func lockFolder(folder string) (unlock func(), err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil // The lock is released with the file.
}

// ownDatabases replaces links to files that are written in place with copies.
func ownDatabases(disk string) error {
	return filepath.WalkDir(filepath.Join(disk, "containerd"), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "snapshots" || entry.Name() == "blobs"):
			return filepath.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.WriteFile(path, data, 0o600)
	})
}

// template returns the folder of the template for the images, and builds it if no other
// cluster has.
func (c *Cluster) template(ctx context.Context) (string, error) {
	key, err := imagesKey(c.Images)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(c.CacheDir, "disk-"+key)
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	c.Say("unpacking %d images: once, about 20 seconds", len(c.Images))
	old, err := filepath.Glob(filepath.Join(c.CacheDir, "disk-*"))
	if err != nil {
		return "", err
	}
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			return "", err
		}
	}
	unfinished := filepath.Join(c.CacheDir, "unfinished")
	if err := errors.Join(c.State.Kill(templateBox), os.RemoveAll(unfinished)); err != nil {
		return "", err
	}
	if err := c.fillTemplate(ctx, unfinished); err != nil {
		return "", errors.Join(err, c.State.Kill(templateBox))
	}
	return folder, os.Rename(unfinished, folder)
}

// fillTemplate makes a containerd import the images, and stops it.
func (c *Cluster) fillTemplate(ctx context.Context, disk string) error {
	if err := c.writeContainerdConfig(disk); err != nil {
		return err
	}
	spec := box.Spec{Name: templateBox, Disk: disk, Leashed: true, Programs: c.BinDir, Services: []box.Service{c.containerd(templateBox, disk)}}
	if err := c.State.Start(spec, c.log(templateBox), nil, func(int) error { return nil }); err != nil {
		return err
	}
	for _, image := range c.Images {
		if err := c.importInto(ctx, templateBox, image); err != nil {
			return err
		}
	}
	if err := c.State.Kill(templateBox); err != nil {
		return err
	}
	// Of the box's files nodes get only the images.
	for _, folder := range box.Copied {
		base := filepath.Join(disk, strings.ReplaceAll(folder[1:], "/", "-"))
		if err := errors.Join(os.RemoveAll(base+".upper"), os.RemoveAll(base+".work")); err != nil {
			return err
		}
	}
	return exec.CommandContext(ctx, "sync", "--file-system", disk).Run()
}

// imagesKey returns a key for the files, made from name, size and time.
func imagesKey(files []string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, containerdConfig)
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			return "", fmt.Errorf("image is not built (make cluster-parts): %w", err)
		}
		fmt.Fprintln(sum, filepath.Base(file), info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(sum.Sum(nil)[:6]), nil
}
