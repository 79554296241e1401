//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// argo is the field manager of Argo CD.
const argo = "argocd-controller"

// comparison is one way to query the API server for the changes that applying manifests would
// make.
type comparison struct {
	what, file       string
	serverSide       bool
	compared, differ int
	first            string // the first difference
}

// gitopsScenario compares what is in Git with the cluster while pods are created and deleted,
// as Argo CD does: by a server-side apply under another field manager's name, and by the
// three-way merge of kubectl apply. Both are dry runs.
func gitopsScenario(ctx context.Context, t *trial) error {
	if err := t.cluster.Apply(ctx, webManifest); err != nil {
		return err
	}
	if _, err := t.shell(ctx, quicken); err != nil {
		return err
	}
	rendered, err := t.chart(ctx, quickPace)
	if err != nil {
		return err
	}
	chart := filepath.Join(t.options.dir, "rendered.yaml")
	if err := os.WriteFile(chart, []byte(rendered), 0o644); err != nil {
		return err
	}
	pools := filepath.Join(t.options.repository, "examples/pools.yaml")
	comparisons := []*comparison{
		{what: "the rendered chart, server-side", file: chart, serverSide: true},
		{what: "pools.yaml, server-side", file: pools, serverSide: true},
		{what: "pools.yaml, three-way", file: pools},
	}
	claimed, returned, err := t.compareUnderLoad(ctx, comparisons)
	if err != nil {
		return err
	}
	t.check("blocks claimed and returned in "+t.options.diffFor.String(), fmt.Sprintf("%d, %d", claimed, returned), claimed > 0 && returned > 0)
	for _, c := range comparisons {
		t.check("comparisons with a difference: "+c.what, fmt.Sprintf("%d of %d %s", c.differ, c.compared, c.first), c.differ == 0 && c.compared > 0)
	}
	return nil
}

// compareUnderLoad compares repeatedly while Deployments grow and shrink, and counts the
// blocks claimed and returned meanwhile.
func (t *trial) compareUnderLoad(ctx context.Context, comparisons []*comparison) (claimed, returned int, err error) {
	load := make(chan error, 1)
	loaded, stop := context.WithCancel(ctx)
	defer stop()
	go func() { load <- t.waves(loaded) }()
	before := 0
	for began := time.Now(); time.Since(began) < t.options.diffFor; {
		for _, c := range comparisons {
			if err := t.compare(ctx, c); err != nil {
				return 0, 0, err
			}
		}
		blocks, err := query[blockList](ctx, t.bed, "podipblocks")
		if err != nil {
			return 0, 0, err
		}
		if now := len(blocks.Items); before != 0 {
			claimed += max(0, now-before)
			returned += max(0, before-now)
		}
		before = len(blocks.Items)
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case err := <-load:
			return 0, 0, fmt.Errorf("growth and reclaim: %w", err)
		case <-time.After(2 * time.Second):
		}
	}
	stop()
	if err := <-load; err != nil && !errors.Is(err, context.Canceled) {
		return 0, 0, err
	}
	return claimed, returned, nil
}

// chart renders the chart with the values of examples/.
func (b *bed) chart(ctx context.Context, args string) (string, error) {
	return b.shell(ctx, "helm template cilium-pool-operator charts/cilium-pool-operator -n kube-system -f examples/values.yaml "+args)
}

// waves lets Deployments grow and shrink until the context ends: one on all nodes, the other
// on one node, which needs more blocks for it.
func (t *trial) waves(ctx context.Context) error {
	for {
		for _, replicas := range []struct{ web, burst int }{{6, 0}, {60, 60}, {3, 0}} {
			for deployment, want := range map[string]int{"web": replicas.web, "burst": replicas.burst} {
				if _, err := t.resize(ctx, deployment, want); err != nil {
					return errors.Join(ctx.Err(), err)
				}
			}
		}
		// Wait until blocks are draining.
		if err := harness.Sleep(ctx, time.Minute); err != nil {
			return err
		}
	}
}

// compare reads the objects of a file and what they would be after applying the file.
func (t *trial) compare(ctx context.Context, c *comparison) error {
	live, err := t.objects(ctx, "get", "-f", c.file)
	if err != nil {
		return err
	}
	args := []string{"apply", "--dry-run=server", "-f", c.file}
	if c.serverSide {
		args = append(args, "--server-side", "--force-conflicts", "--field-manager="+argo)
	}
	applied, err := t.objects(ctx, args...)
	if err != nil {
		return err
	}
	c.compared++
	if diff := cmp.Diff(live, applied); diff != "" {
		c.differ++
		if c.first == "" {
			c.first = diff[:min(len(diff), 400)]
			t.say("%s: %s", c.what, diff)
		}
	}
	return nil
}

// objects returns kubectl's response.
func (t *trial) objects(ctx context.Context, args ...string) (map[string]any, error) {
	text, err := t.cluster.Kubectl(ctx, append(args, "--output=json")...)
	if err != nil {
		return nil, err
	}
	out, err := desired(text)
	if err != nil {
		return nil, fmt.Errorf("kubectl %v: %w", args, err)
	}
	return out, nil
}

// desired returns the objects of a list by kind and name, without what Argo CD does not
// compare: status, and the fields of the API server and kubectl.
func desired(list string) (map[string]any, error) {
	var objects struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(list), &objects); err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, object := range objects.Items {
		delete(object, "status")
		metadata, ok := object["metadata"].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("an object without metadata: %v", object)
		}
		for _, field := range []string{"managedFields", "resourceVersion"} {
			delete(metadata, field)
		}
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, corev1.LastAppliedConfigAnnotation)
		}
		out[fmt.Sprint(object["kind"], " ", metadata["namespace"], "/", metadata["name"])] = object
	}
	if len(out) == 0 {
		return nil, errors.New("no objects")
	}
	return out, nil
}
