package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes the contents of a binary as NAME.cdx.json, CycloneDX 1.6. It is read from the
// binary itself, as go version -m does: the modules that the linker took in, and the Go that built
// it. Each module has its licences.
func (r *release) writeSBOM(binary, name string, l *licenses) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("reading the build information of %s: %w", binary, err)
	}
	sum, err := sha256Of(binary)
	if err != nil {
		return err
	}
	bom := r.bom(info, name, sum, l)
	out, err := os.Create(filepath.Join(r.out, strings.TrimSuffix(name, ".tar.gz")+".cdx.json"))
	if err != nil {
		return err
	}
	defer out.Close()
	encoder := cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return fmt.Errorf("writing the SBOM of %s: %w", name, err)
	}
	return out.Close()
}

func (r *release) bom(info *buildinfo.BuildInfo, name, sum string, l *licenses) *cdx.BOM {
	bom := cdx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + uuidOf(name+sum)
	main := component(&debug.Module{Path: info.Main.Path, Version: r.version}, "Apache-2.0")
	main.Type = cdx.ComponentTypeApplication
	main.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}}
	bom.Metadata = &cdx.Metadata{
		Timestamp:  r.time.Format(time.RFC3339),
		Component:  &main,
		Properties: &[]cdx.Property{{Name: "go:toolchain", Value: info.GoVersion}, {Name: "go:package", Value: info.Path}},
	}
	components := []cdx.Component{component(&debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}, l.ids["stdlib"]...)}
	for _, m := range info.Deps {
		components = append(components, r.dependency(m, l))
	}
	slices.SortFunc(components, func(a, b cdx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	bom.Components = &components
	return bom
}

// dependency is the component of a module in a binary. One replaced by a folder is ours, and
// released with the binary.
func (r *release) dependency(m *debug.Module, l *licenses) cdx.Component {
	by := m.Replace
	if by == nil {
		return component(m, l.ids[m.Path]...)
	}
	if strings.HasPrefix(by.Path, ".") {
		return component(&debug.Module{Path: m.Path, Version: r.version}, "Apache-2.0")
	}
	return component(by, l.ids[by.Path]...)
}

// component names a module by its package URL (github.com/package-url/purl-spec,
// type golang), and its licences by SPDX's names.
func component(m *debug.Module, ids ...string) cdx.Component {
	purl := "pkg:golang/" + strings.ToLower(m.Path) + "@" + url.PathEscape(m.Version)
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: purl, Name: m.Path, Version: m.Version, PackageURL: purl}
	var choices cdx.Licenses
	for _, id := range ids {
		choices = append(choices, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	if choices != nil {
		c.Licenses = &choices
	}
	if m.Sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
	}
	return c
}

// uuidOf is a version 8 UUID of a content (RFC 9562), so that a build again has
// the same.
func uuidOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	h := hex.EncodeToString(sum[:16])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}
