package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"go.uber.org/zap/zapcore"
)

// version and commit are set at build time by -ldflags -X.
var version, commit = "dev", ""

var zapTime = zapcore.RFC3339NanoTimeEncoder

// revision returns the commit of this build, if known.
func revision() string {
	revision := commit
	if info, ok := debug.ReadBuildInfo(); ok && revision == "" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return revision
}

func versionLine() string {
	revision := revision()
	if revision == "" {
		revision = "unknown commit"
	}
	return fmt.Sprintf("cilium-pool-operator %s (%s, %s)", version, revision, runtime.Version())
}
