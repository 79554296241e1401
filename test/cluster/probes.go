//go:build linux

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
)

//go:embed manifests/probe.yaml
var probeManifest string

const (
	probeTimeout = 4 * time.Minute
	// probeService is the URL of the Service by its name, the other one by its address.
	probeService   = "http://probe.default.svc.cluster.local/"
	probeServiceIP = "http://10.96.0.80/"
)

func (b *bed) installProbes(ctx context.Context) error {
	if err := b.cluster.Apply(ctx, probeManifest); err != nil {
		return err
	}
	for _, what := range []string{"daemonset/probe", "daemonset/probe-host"} {
		if err := b.rollout(ctx, "default", what, probeTimeout); err != nil {
			return err
		}
	}
	return nil
}

// probes returns the pods of an app.
func (b *bed) probes(ctx context.Context, app string) ([]corev1.Pod, error) {
	pods, err := query[corev1.PodList](ctx, b, "pods", "--namespace=default", "--selector=app="+app)
	return pods.Items, err
}

// ask makes a probe request a URL.
func (b *bed) ask(ctx context.Context, pod, url string) (string, error) {
	return b.cluster.Kubectl(ctx, "exec", "--namespace=default", pod, "--", "/probe", "get", url)
}

// servedFrom requests the Service by its addresses from each node, and by its name from a pod
// on each, and returns the numbers of answers and requests.
func (b *bed) servedFrom(ctx context.Context) (served, asked int, err error) {
	addresses, err := b.serviceURLs(ctx)
	if err != nil {
		return 0, 0, err
	}
	for app, urls := range map[string][]string{"probe-host": addresses, "probe": {probeService}} {
		for _, url := range urls {
			servedHere, askedHere, err := b.servedAt(ctx, app, url)
			if err != nil {
				return served, asked, err
			}
			served, asked = served+servedHere, asked+askedHere
		}
	}
	return served, asked, nil
}

// serviceURLs returns the addresses of the probes' Service, in each family.
func (b *bed) serviceURLs(ctx context.Context) ([]string, error) {
	service, err := query[corev1.Service](ctx, b, "service", "probe", "--namespace=default")
	var urls []string
	for _, ip := range service.Spec.ClusterIPs {
		urls = append(urls, "http://"+net.JoinHostPort(ip, "80")+"/")
	}
	return urls, err
}

// servedAt requests a URL from each pod of an app.
func (b *bed) servedAt(ctx context.Context, app, url string) (served, asked int, err error) {
	pods, err := b.probes(ctx, app)
	for _, pod := range pods {
		asked++
		err := kube.Await(ctx, 20*time.Second, pod.Name+" reaches "+url, func(ctx context.Context) (bool, string) {
			out, err := b.ask(ctx, pod.Name, url)
			return err == nil && strings.HasPrefix(out, "probe-"), fmt.Sprint(out, err)
		})
		if err != nil {
			b.say("%v", err)
			continue
		}
		served++
	}
	return served, asked, err
}

// losses counts the losses of all pings between pods.
type losses struct {
	Sent, Lost   int
	LongestGapMs int64
}

func (l losses) String() string {
	if l.Lost == 0 {
		return fmt.Sprintf("0 of %d", l.Sent)
	}
	return fmt.Sprintf("%d of %d, longest gap %d ms", l.Lost, l.Sent, l.LongestGapMs)
}

// startPings makes each probe ping the one of the next node.
func (b *bed) startPings(ctx context.Context) error {
	pods, err := b.probes(ctx, "probe")
	if err != nil {
		return err
	}
	for i, pod := range pods {
		peer := pods[(i+1)%len(pods)].Status.PodIP
		if _, err := b.ask(ctx, pod.Name, "http://127.0.0.1:8080/ping?peer="+peer); err != nil {
			return err
		}
	}
	return nil
}

// noPingLost checks that no ping was lost since startPings.
func (t *trial) noPingLost(ctx context.Context, what string) error {
	lost, err := t.pings(ctx)
	if err == nil {
		t.check(what, lost, lost.Lost == 0 && lost.Sent > 0)
	}
	return err
}

// pings returns the losses since startPings.
func (b *bed) pings(ctx context.Context) (losses, error) {
	var sum losses
	pods, err := b.probes(ctx, "probe")
	if err != nil {
		return sum, err
	}
	for _, pod := range pods {
		results, err := b.pingsOf(ctx, pod.Name)
		if err != nil {
			return sum, err
		}
		for _, r := range results {
			sum.Sent += r.Sent
			sum.Lost += r.Lost
			sum.LongestGapMs = max(sum.LongestGapMs, r.LongestGapMs)
		}
	}
	return sum, nil
}

// pingsOf returns the losses of a pod, by the address that it pings.
func (b *bed) pingsOf(ctx context.Context, pod string) (map[string]losses, error) {
	out, err := b.ask(ctx, pod, "http://127.0.0.1:8080/pings")
	if err != nil {
		return nil, err
	}
	var results map[string]losses
	if err := json.Unmarshal([]byte(out), &results); err != nil {
		return nil, fmt.Errorf("pings of %s: %w", pod, err)
	}
	return results, nil
}

// restarts counts the container restarts of the pods in the namespace default.
func (b *bed) restarts(ctx context.Context) (int, error) {
	pods, err := query[corev1.PodList](ctx, b, "pods", "--namespace=default")
	count := 0
	for _, pod := range pods.Items {
		for _, c := range pod.Status.ContainerStatuses {
			count += int(c.RestartCount)
		}
	}
	return count, err
}
