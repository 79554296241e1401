// Command release builds the files of a release: archives of the kubectl plugin, the operator's
// image for several platforms, the chart, an SBOM per binary, krew's manifest and checksums. The
// same commit makes the same files, byte for byte, wherever it is built.
//
//	release -version v0.1.0 -commit SHA -epoch SECONDS -root FOLDER -out FOLDER -helm FILE
//	release licenses -root FOLDER -platform linux/amd64 -out FOLDER
//
// It reaches no network but Go's module proxy, and does not publish.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// repository is where releases are.
const repository = "https://github.com/cilium-pool/cilium-pool-operator"

// release is one release under way.
type release struct {
	version string // v1.2.3, as the tag
	commit  string
	time    time.Time // of everything in archives
	root    string    // of the sources
	out     string    // folder of published files
	work    string    // folder of the other files
	helm    string
	image   string

	plugins, operators []platform
}

// platform is a target of binaries.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "licenses" {
		return runLicenses(ctx, args[1:])
	}
	r, err := parse(args)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	for _, dir := range []string{r.out, r.work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context) error{r.buildPlugins, r.buildImage, r.packChart, r.writeKrew, r.writeChecksums} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

var semver = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

func parse(args []string) (*release, error) {
	r := &release{}
	fs := flag.NewFlagSet("release", flag.ContinueOnError)
	fs.StringVar(&r.version, "version", "", "version, as v1.2.3")
	fs.StringVar(&r.commit, "commit", "", "commit that is built")
	epoch := fs.Int64("epoch", 0, "time of everything in archives, in seconds since 1970: the commit's")
	fs.StringVar(&r.root, "root", "", "folder of the sources")
	fs.StringVar(&r.out, "out", "", "folder to write; what is in it is deleted")
	fs.StringVar(&r.work, "work", "", "folder for what is not published")
	fs.StringVar(&r.helm, "helm", "", "Helm 4")
	fs.StringVar(&r.image, "image", "", "name of the image")
	only := fs.String("only", "", "platforms to build, such as linux/amd64,linux/arm64; empty: all")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if !semver.MatchString(r.version) {
		return nil, fmt.Errorf("-version is %q: write v1.2.3, or v1.2.3-rc.1", r.version)
	}
	for name, value := range map[string]string{"root": r.root, "out": r.out, "work": r.work, "helm": r.helm, "image": r.image} {
		if value == "" {
			return nil, fmt.Errorf("-%s is not given", name)
		}
	}
	r.time = time.Unix(*epoch, 0).UTC()
	for _, os := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			p := platform{os, arch}
			if *only != "" && !strings.Contains(","+*only+",", ","+p.String()+",") {
				continue
			}
			r.plugins = append(r.plugins, p)
			if os == "linux" {
				r.operators = append(r.operators, p)
			}
		}
	}
	if len(r.operators) == 0 {
		return nil, errors.New("-only leaves no linux platform, and the image needs one")
	}
	return r, nil
}

// number is the version as charts and SBOMs have it, without the v.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

// build builds a command of ours. Neither the folder nor the time of the build
// is in the binary.
func (r *release) build(ctx context.Context, command string, p platform) (string, error) {
	binary := filepath.Join(r.work, p.os+"-"+p.arch, command)
	if p.os == "windows" {
		binary += ".exe"
	}
	flags := fmt.Sprintf("-s -w -X main.version=%s -X main.commit=%s", r.version, r.commit)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", binary, "./cmd/"+command)
	cmd.Env = goEnv(p)
	return binary, r.do(cmd, "building "+command+" for "+p.String())
}

func goEnv(p platform) []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0")
}

// do runs a command in the sources' folder; the error holds its output.
func (r *release) do(cmd *exec.Cmd, what string) error {
	fmt.Println(what)
	cmd.Dir = r.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", what, err, out)
	}
	return nil
}

const pluginName = "kubectl-cilium_pool"

// archiveName is that of the plugin's archive.
func archiveName(p platform) string { return fmt.Sprintf("%s_%s_%s.tar.gz", pluginName, p.os, p.arch) }

func (r *release) buildPlugins(ctx context.Context) error {
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	complete, err := os.ReadFile(filepath.Join(r.root, "cmd", pluginName, "kubectl_complete-cilium_pool"))
	if err != nil {
		return err
	}
	for _, p := range r.plugins {
		binary, err := r.build(ctx, pluginName, p)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		others, err := r.readLicenses(ctx, p, pluginName)
		if err != nil {
			return err
		}
		if err := r.writeSBOM(binary, archiveName(p), others); err != nil {
			return err
		}
		files := []file{
			{"LICENSE", 0o644, license},
			{thirdParty, 0o644, others.notice(pluginName)},
			{filepath.Base(binary), 0o755, content},
			{"kubectl_complete-cilium_pool", 0o755, complete},
		}
		if err := writeArchive(filepath.Join(r.out, archiveName(p)), files, r.time); err != nil {
			return err
		}
	}
	return nil
}

// The programs of the image: the first is its entry point.
const (
	operatorName  = "cilium-pool-operator"
	cniPluginName = "cilium-pool-ipam"
)

// buildImage makes one index of all platforms, as an OCI layout in a tar file.
func (r *release) buildImage(ctx context.Context) error {
	var binaries, cniPlugins, platforms, notices []string
	for _, p := range r.operators {
		others, err := r.readLicenses(ctx, p, operatorName, cniPluginName)
		if err != nil {
			return err
		}
		binary, err := r.buildProgram(ctx, operatorName, p, others)
		if err != nil {
			return err
		}
		cniPlugin, err := r.buildProgram(ctx, cniPluginName, p, others)
		if err != nil {
			return err
		}
		folder := filepath.Join(filepath.Dir(binary), "licenses")
		if err := r.writeNotices(folder, operatorName, others); err != nil {
			return err
		}
		binaries = append(binaries, binary)
		cniPlugins = append(cniPlugins, cniPlugin)
		platforms = append(platforms, p.String())
		notices = append(notices, folder)
	}
	folder := filepath.Join(r.work, "layout")
	cmd := exec.CommandContext(ctx, "go", "run", "-C", "hack/image", ".", "-binary", strings.Join(binaries, ","), "-beside", strings.Join(cniPlugins, ","),
		"-platform", strings.Join(platforms, ","), "-tag", r.image+":"+r.version, "-revision", r.commit,
		"-source", repository, "-licenses", strings.Join(notices, ","), "-layout", folder)
	if err := r.do(cmd, "packing the image"); err != nil {
		return err
	}
	files, err := readFolder(folder)
	if err != nil {
		return err
	}
	return writeTar(filepath.Join(r.out, operatorName+"_image.tar"), files, r.time)
}

// buildProgram builds a program of the image, and writes its SBOM.
func (r *release) buildProgram(ctx context.Context, command string, p platform, l *licenses) (string, error) {
	binary, err := r.build(ctx, command, p)
	if err != nil {
		return "", err
	}
	return binary, r.writeSBOM(binary, fmt.Sprintf("%s_%s_%s", command, p.os, p.arch), l)
}

// packChart takes Helm's own package, which has the times of this checkout, and
// packs its files anew.
func (r *release) packChart(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, r.helm, "package", "--version", r.number(), "--app-version", r.version, "--destination", r.work, "charts/"+operatorName)
	if err := r.do(cmd, "packing the chart"); err != nil {
		return err
	}
	name := fmt.Sprintf("%s-%s.tgz", operatorName, r.number())
	files, err := readArchive(filepath.Join(r.work, name))
	if err != nil {
		return err
	}
	return writeArchive(filepath.Join(r.out, name), files, r.time)
}
