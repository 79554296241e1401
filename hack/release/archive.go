package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is one of an archive.
type file struct {
	name    string
	mode    int64
	content []byte
}

// writeTar writes files sorted by name, all of one time and without an owner.
func writeTar(path string, files []file, at time.Time) error {
	packed, err := pack(files, at)
	if err != nil {
		return fmt.Errorf("packing %s: %w", path, err)
	}
	return os.WriteFile(path, packed, 0o644)
}

// writeArchive is writeTar, compressed.
func writeArchive(path string, files []file, at time.Time) error {
	packed, err := pack(files, at)
	if err != nil {
		return fmt.Errorf("packing %s: %w", path, err)
	}
	var out bytes.Buffer
	// A level that exists is never refused, and a buffer takes everything.
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	_, err = w.Write(packed)
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("compressing %s: %w", path, err)
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

func pack(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	sorted := slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
	for _, f := range sorted {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: at, Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// readArchive is the regular files of a compressed tar.
func readArchive(path string) ([]file, error) {
	packed, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer packed.Close()
	plain, err := gzip.NewReader(packed)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	var files []file
	for r := tar.NewReader(plain); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		files = append(files, file{header.Name, 0o644, content})
	}
}

// readFolder is all files below a folder.
func readFolder(dir string) ([]file, error) {
	var files []file
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		files = append(files, file{name, 0o644, content})
		return err
	})
	return files, err
}

// writeChecksums lists the files of the folder, as sha256sum --check reads it.
func (r *release) writeChecksums(context.Context) error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, e := range entries {
		sum, err := sha256Of(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, e.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "checksums.txt"), []byte(lines.String()), 0o644)
}

func sha256Of(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(content)), nil
}
