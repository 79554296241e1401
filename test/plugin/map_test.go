package plugin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
)

// serveMap runs map with the rights of a kubeconfig, and returns the address that
// it prints.
func serveMap(t testing.TB, kubeconfig string) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	cmd := plugin.New(genericiooptions.IOStreams{In: strings.NewReader(""), Out: in, ErrOut: io.Discard}, "v0.0.0-test")
	cmd.SetArgs([]string{"map", "--kubeconfig", kubeconfig})
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		in.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("map ended with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("map printed no address: %v", err)
	}
	return strings.TrimSpace(line)
}

// stream returns the events that the page receives, by name.
func stream(t testing.TB, url string) <-chan [2]string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"events", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		answer.Body.Close()
	})
	events := make(chan [2]string)
	go func() {
		defer close(events)
		lines, name := bufio.NewReader(answer.Body), ""
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if n, ok := strings.CutPrefix(line, "event: "); ok {
				name = strings.TrimSpace(n)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				select {
				case events <- [2]string{name, data}:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return events
}

// mapped writes the map that the page first receives.
func (w *world) cmdMapped(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 0, "mapped")
	first := <-stream(w.tb, serveMap(w.tb, ts.Getenv("KUBECONFIG")))
	var indented bytes.Buffer
	ts.Check(json.Indent(&indented, []byte(first[1]), "", "  "))
	fmt.Fprintln(ts.Stdout(), indented.String())
}

// change is a change event as the page receives it.
type change struct {
	Set  []list.BlockRow
	Gone []netip.Prefix
}

// awaitChange reads events until a change is as wanted.
func awaitChange(t *testing.T, events <-chan [2]string, what string, wanted func(change) bool) {
	t.Helper()
	for e := range events {
		var c change
		if e[0] != "change" {
			continue
		}
		if err := json.Unmarshal([]byte(e[1]), &c); err != nil {
			t.Fatal(err)
		}
		if wanted(c) {
			return
		}
	}
	t.Fatalf("%s: no such event", what)
}

// A map follows the cluster, with the rights that the page lists.
func TestMapIsLive(t *testing.T) {
	w := newWorld(t)
	ctx := context.WithoutCancel(t.Context()) // objects created here are removed at the end
	w.ctx = ctx
	events := stream(t, serveMap(t, w.reader))
	first := <-events
	if first[0] != "map" {
		t.Fatalf("the first event is %q", first[0])
	}
	cidr := netip.MustParsePrefix("10.77.0.0/29")
	block := crd.NewBlock(cidr, "live", "edge-77", "")
	if err := w.client.Create(ctx, block); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.remove(block); err != nil {
			t.Error(err)
		}
	})
	awaitChange(t, events, "a new block", func(c change) bool {
		return len(c.Set) == 1 && c.Set[0].CIDR == cidr && c.Set[0].Node == "edge-77"
	})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-77"},
		Spec:       corev1.PodSpec{NodeName: "edge-77", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if err := w.client.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.remove(pod); err != nil {
			t.Error(err)
		}
	})
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.77.0.2", PodIPs: []corev1.PodIP{{IP: "10.77.0.2"}}}
	if err := w.client.Status().Update(ctx, pod); err != nil {
		t.Fatal(err)
	}
	awaitChange(t, events, "a pod's address", func(c change) bool { return len(c.Set) == 1 && c.Set[0].Used == 1 })
	if err := w.client.Patch(ctx, block, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(ctx, block); err != nil {
		t.Fatal(err)
	}
	awaitChange(t, events, "a block that went", func(c change) bool { return len(c.Gone) == 1 && c.Gone[0] == cidr })
}

// Without the rights to list and watch, the command reports the missing ones.
func TestMapWithoutRights(t *testing.T) {
	w := newWorld(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "unprivileged"}}
	if err := w.client.Create(w.ctx, account); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	config, err := w.cluster.ConfigFor(t.Context(), "default", "unprivileged")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := t.TempDir() + "/unprivileged"
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	cmd := plugin.New(genericiooptions.NewTestIOStreamsDiscard(), "v0.0.0-test")
	cmd.SetArgs([]string{"map", "--kubeconfig", kubeconfig})
	err = cmd.ExecuteContext(w.ctx)
	if err == nil || !strings.Contains(err.Error(), "is forbidden") || !strings.Contains(err.Error(), "cannot watch the cluster") {
		t.Errorf("map ended with %v", err)
	}
}

// The map reports a cluster that it can no longer reach.
func TestMapSaysThatItIsOld(t *testing.T) {
	cluster := cptest.New(t, controlplane.Options{})
	kubeconfig := t.TempDir() + "/admin"
	if err := cluster.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	events := stream(t, serveMap(t, kubeconfig))
	if first := <-events; first[0] != "map" {
		t.Fatalf("the first event is %q", first[0])
	}
	if err := cluster.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	for e := range events {
		if e[0] == "problem" && strings.Contains(e[1], "cannot watch the cluster") {
			return
		}
	}
	t.Fatal("no problem event")
}
