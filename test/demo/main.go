// Command demo shows the operator at work.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
	corev1 "k8s.io/api/core/v1"
	"os/exec"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	say := func(f string, a ...any) { fmt.Printf(f+"\n", a...) }
	s, err := build(ctx, ".cache/bin", ".run/demo", false, say)
	if err != nil { fmt.Println(err); os.Exit(1) }
	defer func() { fmt.Println(s.strike()) }()
	f, err := newFleet(s.cluster.Config())
	if err != nil { fmt.Println(err); return }
	go f.run(ctx)
	var names []string
	for i := range 2 {
		n, err := s.joinNode(ctx, zones[i], 1)
		if err != nil { fmt.Println(err); return }
		names = append(names, n)
	}
	pool := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "beijing"}}
	pool.Spec.IPv4 = &v1alpha1.IPv4Ranges{CIDRs: []v1alpha1.PoolCIDR{{CIDR: "100.162.224.0/19"}}, BlockSize: 27}
	fmt.Println(s.client.Create(ctx, pool))
	rctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	fmt.Println(f.ready(rctx, names))
	for i := range 60 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i)}, Spec: corev1.PodSpec{NodeName: names[0], Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if err := s.client.Create(ctx, p); err != nil { fmt.Println(err) }
	}
	time.Sleep(4 * time.Second)
	k := func(a ...string) {
	out, _ := exec.Command(".cache/bin/kubectl", append([]string{"--kubeconfig=.run/demo/kubeconfig"}, a...)...).CombinedOutput()
	fmt.Println(string(out))
	}
	k("get", "podippools,podipblocks,ciliumnodes,events")
	k("delete", "pods", "--all")
	time.Sleep(25 * time.Second)
	k("get", "podippools,podipblocks,ciliumnodes,events")
	fmt.Println("added", f.added.Load(), "failed", f.failed.Load())
	k("get", "ciliumnode", names[0], "-oyaml")
}
