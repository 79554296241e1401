package mapbrowser

import (
	"bufio"
	"context"
	"io"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
)

// cluster is an API server with clients that write to it.
type cluster struct {
	*testing.T
	client.Client
	kubeconfig string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	plane := cptest.New(t, controlplane.Options{})
	scheme, err := apiclient.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(plane.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "admin")
	if err := plane.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	return &cluster{T: t, Client: c, kubeconfig: kubeconfig}
}

func (c *cluster) create(o client.Object) {
	c.Helper()
	if err := c.Create(c.Context(), o); err != nil {
		c.Fatal(err)
	}
}

// block returns a block of node edge-01 in pool main.
func (c *cluster) block(cidr string) *v1alpha1.PodIPBlock {
	c.Helper()
	b := crd.NewBlock(netip.MustParsePrefix(cidr), "main", "edge-01", "")
	b.Finalizers = nil // no operator would remove it
	c.create(b)
	return b
}

// serve runs kubectl cilium-pool map, and returns the address that it prints.
func (c *cluster) serve() string {
	c.Helper()
	ctx, stop := context.WithCancel(c.Context())
	out, in := io.Pipe()
	cmd := plugin.New(genericiooptions.IOStreams{In: strings.NewReader(""), Out: in, ErrOut: io.Discard}, "v0.0.0-test")
	cmd.SetArgs([]string{"map", "--kubeconfig", c.kubeconfig})
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		in.CloseWithError(err)
		ended <- err
	}()
	c.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			c.Errorf("map ended with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		c.Fatalf("map printed no address: %v", err)
	}
	return strings.TrimSpace(line)
}

// This is the whole path, from an API server through the plugin's watches to a browser: the page
// shows the objects, follows changes, and finds a pod.
func TestOfACluster(t *testing.T) {
	c := newCluster(t)
	pool := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
	pool.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 29, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.20.0.0/26"}}}
	c.create(pool)
	first := c.block("10.20.0.0/29")

	b := open(t, c.serve())
	b.untilText("#pools h2", "main")
	b.untilText("#count", "1 block")
	b.untilText(".caption", "1 of 8 held")

	c.block("10.20.0.8/29")
	b.untilText("#count", "2 blocks")

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0"},
		Spec:       corev1.PodSpec{NodeName: "edge-01", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	c.create(pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.20.0.10", PodIPs: []corev1.PodIP{{IP: "10.20.0.10"}}}
	if err := c.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	b.keys("t") // the table says in words the meaning of the cells' colours
	b.until(`[...document.querySelectorAll("tbody tr")].some(r => /10\.20\.0\.8\/29.*\t1\t6\t/.test(r.innerText))`)
	b.keys("r")
	b.find("web-0", "web-0")
	b.untilText("#card h3", "10.20.0.8/29")
	b.keys(kb.Escape)
	b.untilText("#count", "2 blocks")

	if err := c.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	b.until(`document.querySelector("#count").innerText === "1 block"`)
	b.untilText(".caption", "1 of 8 held")
}
