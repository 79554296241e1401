//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// query returns objects as kubectl get --output=json prints them.
func query[T any](ctx context.Context, b *bed, args ...string) (T, error) {
	var out T
	text, err := b.cluster.Kubectl(ctx, append([]string{"get", "--output=json"}, args...)...)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return out, fmt.Errorf("kubectl get %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// blockList contains the fields of PodIPBlocks that scenarios read.
type blockList struct{ Items []block }

type block struct {
	Metadata struct{ Name string }
	Spec     struct {
		CIDR     string
		NodeName string
	}
}

// burstBlocks counts the blocks of the node that many pods start on at once.
func (b *bed) burstBlocks(ctx context.Context) (int, error) {
	blocks, err := query[blockList](ctx, b, "podipblocks")
	count := 0
	for _, block := range blocks.Items {
		if block.Spec.NodeName == burstNode {
			count++
		}
	}
	return count, err
}

// failedSandboxes counts kubelet's events of failed sandboxes, and the ones for lack of an
// address; with an example of the latter, if there is one.
func (b *bed) failedSandboxes(ctx context.Context) (total, noAddress int, example string, err error) {
	events, err := query[corev1.EventList](ctx, b, "events", "--all-namespaces", "--field-selector=reason=FailedCreatePodSandBox")
	for _, event := range events.Items {
		times := int(max(event.Count, 1))
		total += times
		if lacksAddress(event.Message) {
			noAddress += times
			example = event.Message
		} else if noAddress == 0 {
			example = event.Message
		}
	}
	return total, noAddress, example, err
}

// lacksAddress reports whether kubelet's event is of an agent that had no address. An agent
// that has not seen the pod yet, and so does not know its pool, may have many.
func lacksAddress(message string) bool {
	if strings.Contains(message, "unable to determine IPAM pool") {
		return false
	}
	return slices.ContainsFunc([]string{"IPAM", "ipam", "Ipam", "No more IPs", "address"}, func(word string) bool {
		return strings.Contains(message, word)
	})
}

// collect saves the state of a cluster that is about to be deleted.
func (b *bed) collect(scenario string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for name, args := range map[string][]string{
		"pods":       {"get", "pods", "--all-namespaces", "--output=wide"},
		"events":     {"get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"},
		"blocks":     {"get", "podippools,podipblocks,ciliumnodes", "--output=yaml"},
		"operator":   {"logs", "--namespace=kube-system", "--selector=app.kubernetes.io/name=cilium-pool-operator", "--all-containers", "--tail=-1", "--prefix"},
		"agents":     {"logs", "--namespace=kube-system", "--selector=k8s-app=cilium", "--container=cilium-agent", "--tail=2000", "--prefix"},
		"ciliumpods": {"describe", "pods", "--namespace=kube-system"},
	} {
		out, err := b.cluster.Kubectl(ctx, args...)
		if err != nil {
			out += "\n" + err.Error() + "\n"
		}
		path := filepath.Join(b.cluster.Logs(), scenario+"-"+name+".txt")
		if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
			b.say("%v", err)
		}
	}
}
