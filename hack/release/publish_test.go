package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const publishedImage = "registry.example/pools/operator"

// publishing is a checkout with a tag, the files of a release, and programs that note their calls
// in place of the publishing ones.
type publishing struct {
	*testing.T
	dir, dist string
	env       []string
}

func newPublishing(t *testing.T) *publishing {
	t.Helper()
	p := &publishing{T: t, dir: t.TempDir()}
	p.dist = filepath.Join(p.dir, "dist")
	for _, name := range []string{"publish.sh", "release-gate.sh"} {
		script, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		p.write("hack/"+name, string(script))
	}
	p.write(".gitignore", "dist\n.cache\nbin\ncalls\n")
	p.write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n- later\n\n## [1.2.3] - 2026-11-20\n\n- new: this\n\n## [1.2.2] - 2026-10-01\n\n- old\n")
	p.write("charts/cilium-pool-operator/Chart.yaml", "version: 1.2.3\nappVersion: v1.2.3\n")
	p.write("dist/cilium-pool-operator-1.2.3.tgz", "chart")
	image := filepath.Join(p.dist, "cilium-pool-operator_image.tar")
	if err := writeTar(image, []file{{"index.json", 0o644, []byte("{}")}}, time.Unix(1700000000, 0)); err != nil {
		t.Fatal(err)
	}
	p.write("dist/cilium-pool-ipam_linux_amd64.cdx.json", "{}")
	p.write("dist/cilium-pool-operator_linux_amd64.cdx.json", "{}")
	p.write("dist/cilium-pool-operator_linux_arm64.cdx.json", "{}")
	sum, err := sha256Of(image)
	if err != nil {
		t.Fatal(err)
	}
	p.write("dist/checksums.txt", fmt.Sprintf("%x  cilium-pool-operator-1.2.3.tgz\n%s  cilium-pool-operator_image.tar\n", sha256.Sum256([]byte("chart")), sum))
	p.stub("crane", `[ "$1" = push ] && cat "$3/index.json" >/dev/null && echo "`+publishedImage+`@sha256:1111"`)
	p.stub("cosign", "")
	p.stub("helm", `[ "$1" = push ] && printf 'Pushed: chart\nDigest: sha256:2222\n' >&2`)
	p.stub("gh", "")
	p.env = append(os.Environ(), "PATH="+filepath.Join(p.dir, "bin")+":"+os.Getenv("PATH"), "CALLS="+filepath.Join(p.dir, "calls"),
		"GITHUB_ACTIONS=true", "GITHUB_ACTOR=somebody", "GITHUB_TOKEN=secret-of-the-run", "GITHUB_REF=refs/tags/v1.2.3",
		"GITHUB_SERVER_URL=https://forge.example", "GITHUB_REPOSITORY=pools/operator", "GITHUB_RUN_ID=7", "GITHUB_RUN_ATTEMPT=1",
		"GITHUB_WORKFLOW_REF=pools/operator/.github/workflows/release.yaml@refs/tags/v1.2.3")
	p.git("init", "--quiet")
	p.tag()
	return p
}

// tag commits all files, as the version, on main.
func (p *publishing) tag() {
	p.Helper()
	p.git("add", "--all")
	p.git("-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "--quiet", "--message=x")
	p.git("tag", "--force", "v1.2.3")
	p.git("tag", "--force", "api/v1.2.3")
	p.git("update-ref", "refs/remotes/origin/main", "HEAD")
}

func (p *publishing) write(name, content string) {
	p.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		p.Fatal(err)
	}
}

// stub makes a program that notes its arguments and runs a script.
func (p *publishing) stub(name, does string) {
	p.Helper()
	p.write("bin/"+name, "#!/bin/sh\necho \""+name+" $*\" >>\"$CALLS\"\n"+does+"\nexit 0\n")
}

func (p *publishing) git(args ...string) string {
	p.Helper()
	cmd := exec.CommandContext(p.Context(), "git", args...)
	cmd.Dir = p.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// run publishes, and returns the calls made, with the checkout's own paths left out.
func (p *publishing) run() (calls []string, said string, err error) {
	p.Helper()
	bin := filepath.Join(p.dir, "bin")
	return p.script("publish.sh", "v1.2.3", p.dist, publishedImage, filepath.Join(bin, "cosign"), filepath.Join(bin, "crane"), filepath.Join(bin, "helm"))
}

// script runs a script of hack.
func (p *publishing) script(name string, args ...string) (calls []string, said string, err error) {
	p.Helper()
	cmd := exec.CommandContext(p.Context(), "bash", append([]string{filepath.Join(p.dir, "hack", name)}, args...)...)
	cmd.Env = p.env
	out, err := cmd.CombinedOutput()
	noted, _ := os.ReadFile(filepath.Join(p.dir, "calls")) // none: there was no call
	for line := range strings.Lines(string(noted)) {
		calls = append(calls, strings.TrimSpace(strings.ReplaceAll(line, p.dir+"/", "")))
	}
	return calls, string(out), err
}

// The image is pushed, then signed by its digest, with its source and its contents; then the chart;
// then the checksums; and all files go to a draft.
func TestPublish(t *testing.T) {
	p := newPublishing(t)
	calls, said, err := p.run()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	want := []string{
		"crane auth login registry.example --username somebody --password-stdin",
		"helm registry login registry.example --username somebody --password-stdin",
		"crane push --index .cache/release/layout registry.example/pools/operator:v1.2.3",
		"cosign sign --yes --recursive registry.example/pools/operator@sha256:1111",
		"cosign attest --yes --type slsaprovenance1 --predicate .cache/release/provenance.json registry.example/pools/operator@sha256:1111",
		"cosign attest --yes --type cyclonedx --predicate dist/cilium-pool-ipam_linux_amd64.cdx.json registry.example/pools/operator@sha256:1111",
		"cosign attest --yes --type cyclonedx --predicate dist/cilium-pool-operator_linux_amd64.cdx.json registry.example/pools/operator@sha256:1111",
		"cosign attest --yes --type cyclonedx --predicate dist/cilium-pool-operator_linux_arm64.cdx.json registry.example/pools/operator@sha256:1111",
		"helm push dist/cilium-pool-operator-1.2.3.tgz oci://registry.example/pools/charts",
		"cosign sign --yes registry.example/pools/charts/cilium-pool-operator@sha256:2222",
		"cosign sign-blob --yes --bundle dist/checksums.txt.sigstore.json dist/checksums.txt",
		"cosign attest-blob --yes --type slsaprovenance1 --predicate .cache/release/provenance.json --bundle dist/provenance.sigstore.json dist/checksums.txt",
		"gh release create v1.2.3 --draft --verify-tag --title v1.2.3 --notes-file .cache/release/notes.md dist/checksums.txt " +
			"dist/cilium-pool-ipam_linux_amd64.cdx.json dist/cilium-pool-operator-1.2.3.tgz dist/cilium-pool-operator_image.tar dist/cilium-pool-operator_linux_amd64.cdx.json dist/cilium-pool-operator_linux_arm64.cdx.json",
	}
	if !slices.Equal(want, calls) {
		t.Errorf("calls are\n%s\nwant\n%s", strings.Join(calls, "\n"), strings.Join(want, "\n"))
	}
	notes, err := os.ReadFile(filepath.Join(p.dir, ".cache", "release", "notes.md"))
	if err != nil || strings.TrimSpace(string(notes)) != "- new: this" {
		t.Errorf("the notes are %q, %v", notes, err)
	}
	p.provenance()
}

// provenance holds the statement to SLSA's demands: commit, repository and workflow.
func (p *publishing) provenance() {
	p.Helper()
	body, err := os.ReadFile(filepath.Join(p.dir, ".cache", "release", "provenance.json"))
	if err != nil {
		p.Fatal(err)
	}
	var is struct {
		BuildDefinition struct {
			ResolvedDependencies []struct {
				URI    string
				Digest struct{ GitCommit string }
			}
		}
		RunDetails struct{ Builder struct{ ID string } }
	}
	if err := json.Unmarshal(body, &is); err != nil {
		p.Fatalf("%v\n%s", err, body)
	}
	from := is.BuildDefinition.ResolvedDependencies
	if len(from) != 1 || from[0].URI != "git+https://forge.example/pools/operator@refs/tags/v1.2.3" || from[0].Digest.GitCommit != p.git("rev-parse", "HEAD") {
		p.Errorf("it is built from %+v", from)
	}
	if want := "https://forge.example/pools/operator/.github/workflows/release.yaml@refs/tags/v1.2.3"; is.RunDetails.Builder.ID != want {
		p.Errorf("it is built by %s, want %s", is.RunDetails.Builder.ID, want)
	}
}

// A fault in the checkout or the files prevents all publishing; and where a step fails, none after
// it is taken.
func TestPublishRefuses(t *testing.T) {
	tests := map[string]struct {
		wrong func(*publishing)
		says  string
		last  string // the last call; "": none
	}{
		"outside the workflow": {func(p *publishing) { p.env = append(p.env, "GITHUB_ACTIONS=") }, "only the release workflow publishes", ""},
		"no tag":               {func(p *publishing) { p.git("tag", "--delete", "v1.2.3") }, "is not the tag", ""},
		"another tag": {func(p *publishing) {
			p.git("tag", "--delete", "v1.2.3")
			p.git("tag", "v1.2.4")
		}, "is not the tag", ""},
		"changed files":          {func(p *publishing) { p.write("CHANGELOG.md", "## [1.2.3]\n") }, "files are changed", ""},
		"files of another build": {func(p *publishing) { p.write("dist/cilium-pool-operator-1.2.3.tgz", "other") }, "did NOT match", ""},
		"the image is not pushed": {
			func(p *publishing) { p.stub("crane", `[ "$1" != push ] || exit 1`) }, "",
			"crane push --index .cache/release/layout registry.example/pools/operator:v1.2.3",
		},
		"the chart is not pushed": {
			func(p *publishing) { p.stub("helm", "") }, "the chart was not pushed",
			"helm push dist/cilium-pool-operator-1.2.3.tgz oci://registry.example/pools/charts",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPublishing(t)
			test.wrong(p)
			calls, said, err := p.run()
			last := ""
			if len(calls) > 0 {
				last = calls[len(calls)-1]
			}
			if err == nil || !strings.Contains(said, test.says) || last != test.last {
				t.Errorf("error %v, last call %q (want %q); it said:\n%s", err, last, test.last, said)
			}
			if strings.Contains(said, "secret-of-the-run") {
				t.Error("it tells the token")
			}
		})
	}
}

// A signed tag, of a commit that passed on main, may become a release, and no other.
func TestGate(t *testing.T) {
	// forge answers as GitHub does; the test's answers come first.
	forge := func(p *publishing, answers string) {
		p.stub("gh", `case "$*" in
`+answers+`
"api repos/pools/operator/git/ref/tags/"*) echo "tag 77" ;;
"api repos/pools/operator/git/tags/77 "*) echo "true valid `+p.git("rev-parse", "HEAD")+`" ;;
"run list --repo pools/operator --workflow "*" --branch main --event push --commit `+p.git("rev-parse", "HEAD")+` --status success "*) echo 1 ;;
*) exit 1 ;;
esac`)
	}
	tests := map[string]struct {
		answers string
		wrong   func(*publishing)
		says    string
	}{
		"as it must be": {says: "v1.2.3 of commit"},
		"nothing in the changelog": {wrong: func(p *publishing) {
			p.write("CHANGELOG.md", "## [Unreleased]\n")
		}, says: "CHANGELOG.md has no section 1.2.3"},
		"a chart of another version": {wrong: func(p *publishing) {
			p.write("charts/cilium-pool-operator/Chart.yaml", "version: 1.2.3\nappVersion: v1.2.2\n")
		}, says: "Chart.yaml are not 1.2.3 and v1.2.3"},
		"no tag of the module api": {answers: `*/tags/api/*) exit 1 ;;`, says: "there is no tag api/v1.2.3"},
		"a tag that is a name":     {answers: `*/ref/tags/*) echo "commit 77" ;;`, says: "v1.2.3 is not signed"},
		"a tag without signature":  {answers: `*/tags/77*) echo "false unsigned 77" ;;`, says: "not verified (unsigned)"},
		"a tag of another commit":  {answers: `*/tags/77*) echo "true valid 77" ;;`, says: "v1.2.3 is of commit 77"},
		"not on main": {wrong: func(p *publishing) {
			p.git("update-ref", "refs/remotes/origin/main", p.git("-c", "user.name=x", "-c", "user.email=x@example.com", "commit-tree", "-m", "other", "HEAD^{tree}"))
		}, says: "is not on main"},
		"CI has not passed":             {answers: `*" test.yaml "*) echo 0 ;;`, says: "workflow test has not passed"},
		"vulnerabilities were found":    {answers: `*" vulnerabilities.yaml "*) echo 0 ;;`, says: "workflow vulnerabilities has not passed"},
		"the forge does not answer now": {answers: `"run list "*) exit 1 ;;`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPublishing(t)
			forge(p, test.answers)
			if test.wrong != nil {
				test.wrong(p)
			}
			_, said, err := p.script("release-gate.sh", "v1.2.3")
			if passed := name == "as it must be"; (err == nil) != passed || !strings.Contains(said, test.says) {
				t.Errorf("error %v; it said:\n%s", err, said)
			}
		})
	}
}
