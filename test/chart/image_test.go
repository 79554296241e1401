package chart

import (
	"os"
	"regexp"
	"testing"
)

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
