package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licenseclassifier/v2/assets"
)

// thirdParty is the name of the file with the licences of other projects' modules.
const thirdParty = "THIRD_PARTY_LICENSES"

// licenses are the licences of the modules in a binary.
type licenses struct {
	ids   map[string][]string // SPDX identifiers by the module's path
	texts map[string][]string // modules, as path and version, by text
}

// allowed are the licences that may be in a binary of ours, as SPDX has them.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}

var (
	licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([-._].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^(notice|copyright|patents)([-._].*)?$`)
)

// linked is a package of a binary, as go list prints it.
type linked struct {
	Dir      string
	Standard bool
	Module   *linkedModule
}

// linkedModule is the module of a linked package.
type linkedModule struct {
	Path, Version, Dir string
	Main               bool
	Replace            *linkedModule
}

// readLicenses reads the licences of all modules of commands: of their own folder, and of the
// folders of linked packages, which may hold code of others. A module without a licence that is
// known and allowed is an error.
func (r *release) readLicenses(ctx context.Context, p platform, commands ...string) (*licenses, error) {
	folders, err := r.licensed(ctx, p, commands)
	if err != nil {
		return nil, err
	}
	classifier, err := assets.DefaultClassifier()
	if err != nil {
		return nil, fmt.Errorf("reading known licences: %w", err)
	}
	l := &licenses{ids: map[string][]string{}, texts: map[string][]string{}}
	var problems []error
	for _, module := range slices.Sorted(maps.Keys(folders)) {
		path, _, _ := strings.Cut(module, " ")
		ids := map[string]bool{}
		for _, file := range folders[module].files() {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			l.texts[string(text)] = append(l.texts[string(text)], module)
			if !licenseFile.MatchString(filepath.Base(file)) {
				continue
			}
			for _, match := range classifier.Match(classifier.Normalize(text)).Matches {
				ids[match.Name] = ids[match.Name] || match.MatchType == "License"
			}
		}
		maps.DeleteFunc(ids, func(_ string, isLicense bool) bool { return !isLicense })
		l.ids[path] = slices.Sorted(maps.Keys(ids))
		problems = append(problems, judge(module, l.ids[path]))
	}
	return l, errors.Join(problems...)
}

// judge returns why a module may not be in a binary.
func judge(module string, ids []string) error {
	if len(ids) == 0 {
		return fmt.Errorf("module %s has no licence that is known", module)
	}
	for _, id := range ids {
		if !slices.Contains(allowed, id) {
			return fmt.Errorf("module %s has licence %s: allow it in hack/release/licenses.go, or do without the module", module, id)
		}
	}
	return nil
}

// folders are folders that may hold licences.
type folders map[string]bool

// files returns the files with licences and notices.
func (f folders) files() []string {
	var found []string
	for dir := range f {
		entries, _ := os.ReadDir(dir) // one that cannot be read has no licence
		for _, e := range entries {
			name := e.Name()
			if e.Type().IsRegular() && !strings.HasSuffix(name, ".go") && (licenseFile.MatchString(name) || noticeFile.MatchString(name)) {
				found = append(found, filepath.Join(dir, name))
			}
		}
	}
	slices.Sort(found)
	return found
}

// licensed returns the folders of each module, by its path and version.
func (r *release) licensed(ctx context.Context, p platform, commands []string) (map[string]folders, error) {
	args := []string{"list", "-deps", "-json=Dir,Standard,Module"}
	for _, command := range commands {
		args = append(args, "./cmd/"+command)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = r.root, goEnv(p)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages of %v: %w", commands, err)
	}
	goroot, err := exec.CommandContext(ctx, "go", "-C", r.root, "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("finding Go's licence: %w", err)
	}
	found := map[string]folders{"stdlib": {strings.TrimSpace(string(goroot)): true}}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg linked
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("listing the packages of %v: %w", commands, err)
		}
		if pkg.Standard || pkg.Module == nil || pkg.Module.Main {
			continue
		}
		source := pkg.Module
		if source.Replace != nil {
			source = source.Replace
		}
		if source.Version == "" { // a folder of ours
			continue
		}
		module := source.Path + " " + source.Version
		if found[module] == nil {
			found[module] = folders{source.Dir: true}
		}
		for dir := pkg.Dir; len(dir) > len(source.Dir); dir = filepath.Dir(dir) {
			found[module][dir] = true
		}
	}
}

// notice returns all texts, each once, below the modules that it is for.
func (l *licenses) notice(command string) []byte {
	type section struct{ modules, text string }
	var sections []section
	for text, modules := range l.texts {
		slices.Sort(modules)
		sections = append(sections, section{strings.Join(slices.Compact(modules), "\n"), text})
	}
	slices.SortFunc(sections, func(a, b section) int {
		return strings.Compare(a.modules+"\n"+a.text, b.modules+"\n"+b.text)
	})
	var out bytes.Buffer
	fmt.Fprintf(&out, "Modules of other projects in %s, and their licences.\n", command)
	for _, s := range sections {
		fmt.Fprintf(&out, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), s.modules, strings.TrimSpace(s.text))
	}
	return out.Bytes()
}

// writeNotices writes our licence and the licences of others into a folder, for the image.
func (r *release) writeNotices(folder, command string, l *licenses) error {
	own, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "LICENSE"), own, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, thirdParty), l.notice(command), 0o644)
}

// runLicenses writes the licences of the image alone: release licenses -root FOLDER -platform OS/ARCH -out FOLDER.
func runLicenses(ctx context.Context, args []string) error {
	r := &release{}
	fs := flag.NewFlagSet("release licenses", flag.ContinueOnError)
	fs.StringVar(&r.root, "root", "", "folder of the sources")
	fs.StringVar(&r.out, "out", "", "folder to write")
	target := fs.String("platform", "linux/amd64", "platform of the binary")
	if err := fs.Parse(args); err != nil {
		return err
	}
	os, arch, _ := strings.Cut(*target, "/")
	l, err := r.readLicenses(ctx, platform{os, arch}, operatorName, cniPluginName)
	if err != nil {
		return err
	}
	return r.writeNotices(r.out, operatorName, l)
}
