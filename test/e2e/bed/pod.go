//go:build linux

package bed

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

const cniConfig = `{"cniVersion":"0.3.1","name":"cilium","type":"cilium-cni","log-file":%q}`

// cniTimeout is the time that a kubelet waits for a sandbox to come up.
const cniTimeout = 4 * time.Minute

// Pod is a pod with its own network namespace.
type Pod struct {
	Namespace, Name string
	// Addresses are the result of CNI ADD, IPv4 first; Address is the first.
	Addresses []netip.Addr
	Address   netip.Addr
	// Created is when the API server responded to the creation, or the pod was seen bound,
	// Added when CNI ADD returned.
	Created, Added time.Time

	node    *Node
	netns   *os.File
	sandbox string
}

// CreatePod creates the Pod object, bound to the node, in an existing namespace.
func (n *Node) CreatePod(ctx context.Context, meta metav1.ObjectMeta) (*Pod, error) {
	name := meta.Name
	if meta.Namespace == "" {
		meta.Namespace = metav1.NamespaceDefault
	}
	object := &corev1.Pod{
		ObjectMeta: meta,
		Spec:       corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if err := n.bed.Client.Create(ctx, object); err != nil {
		return nil, fmt.Errorf("create pod %s: %w", name, err)
	}
	return (&Pod{Namespace: meta.Namespace, Name: name, Created: time.Now(), node: n}).Again(), nil
}

// Again returns another sandbox of the same pod, with its own network namespace, as a kubelet
// creates one when the pod's sandbox has failed.
func (p *Pod) Again() *Pod {
	var id [32]byte
	_, _ = rand.Read(id[:])
	return &Pod{Namespace: p.Namespace, Name: p.Name, Created: p.Created, node: p.node, sandbox: hex.EncodeToString(id[:])}
}

// Attach sets up the pod's network with one CNI ADD. It does not retry; the caller may.
func (p *Pod) Attach(ctx context.Context) error {
	if p.netns == nil {
		var err error
		if p.netns, err = newNetns(); err != nil {
			return err
		}
	}
	out, err := p.cni(ctx, "ADD")
	if err != nil {
		return err
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(out, &result); err != nil || len(result.IPs) == 0 {
		return fmt.Errorf("CNI ADD of %s answered %q: %w", p.Name, out, err)
	}
	p.Added, p.Addresses = time.Now(), nil
	for _, ip := range result.IPs {
		p.Addresses = append(p.Addresses, ip.Address.Addr())
	}
	slices.SortFunc(p.Addresses, netip.Addr.Compare)
	p.Address = p.Addresses[0]
	p.node.bed.setAttached(p, true)
	return nil
}

// Report writes the pod's status, as a kubelet does once it has attached the pod.
func (p *Pod) Report(ctx context.Context) error {
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	var ips []corev1.PodIP
	for _, a := range p.Addresses {
		ips = append(ips, corev1.PodIP{IP: a.String()})
	}
	object.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: p.node.Addresses[0].String(), PodIP: ips[0].IP, PodIPs: ips}
	agent.SetConditions(object, true)
	status, err := json.Marshal(map[string]any{"status": object.Status})
	if err != nil {
		return fmt.Errorf("write status of pod %s: %w", p.Name, err)
	}
	if err := p.node.bed.Client.Status().Patch(ctx, object, client.RawPatch("application/strategic-merge-patch+json", status)); err != nil {
		return fmt.Errorf("write status of pod %s: %w", p.Name, err)
	}
	return nil
}

// Delete deletes the pod as the API server and a kubelet do: it marks the object as deleted,
// removes the network, and then the object.
func (p *Pod) Delete(ctx context.Context) error {
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	if err := p.node.bed.Client.Delete(ctx, object); err != nil {
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	if err := p.Detach(ctx); err != nil {
		return err
	}
	if err := p.netns.Close(); err != nil {
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	if err := p.node.bed.Client.Delete(ctx, object, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	return nil
}

// Detach removes the sandbox's network with one CNI DEL. The Pod object stays. It can be
// called again, as runtimes do.
func (p *Pod) Detach(ctx context.Context) error {
	p.node.bed.setAttached(p, false)
	if p.netns == nil {
		return nil // Its ADD never began.
	}
	_, err := p.cni(ctx, "DEL")
	return err
}

// cni calls the plugin as a container runtime does.
func (p *Pod) cni(ctx context.Context, command string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, cniTimeout)
	defer cancel()
	argv := p.node.enter(filepath.Join(p.node.bed.opts.CiliumDir, cniName))
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(),
		"CNI_COMMAND="+command,
		"CNI_CONTAINERID="+p.sandbox,
		fmt.Sprintf("CNI_NETNS=/proc/%d/fd/%d", os.Getpid(), p.netns.Fd()),
		"CNI_IFNAME=eth0",
		"CNI_PATH="+p.node.bed.opts.CiliumDir,
		"CNI_ARGS="+strings.Join([]string{
			"IgnoreUnknown=1", "K8S_POD_NAMESPACE=" + p.Namespace,
			"K8S_POD_NAME=" + p.Name, "K8S_POD_INFRA_CONTAINER_ID=" + p.sandbox,
		}, ";"),
	)
	cmd.Stdin = strings.NewReader(fmt.Sprintf(cniConfig, filepath.Join(p.node.bed.opts.Logs, p.node.Name+"-cni.log")))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("CNI %s of %s: %w: %s%s", command, p.Name, err, bytes.TrimSpace(out), bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// Node returns the node that the pod runs on.
func (p *Pod) Node() *Node { return p.node }
