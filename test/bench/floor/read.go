package floor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const podsPath = "/api/v1/pods"

// podFields are the pods that the operator reads.
const podFields = "spec.nodeName!=,spec.hostNetwork=false,status.phase!=Succeeded,status.phase!=Failed"

// List reads and decodes once all that the operator watches, one kind beside
// the other, as whole lists and whole objects: more than a reader needs.
func List(ctx context.Context, f *Floor) error {
	scheme, err := apiclient.Scheme()
	if err != nil {
		return err
	}
	c, err := client.New(f.config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	pods := fields.ParseSelectorOrDie(podFields)
	reads := []struct {
		list    client.ObjectList
		options []client.ListOption
	}{
		{&v1alpha1.PodIPBlockList{}, nil}, {&ciliumv2.CiliumNodeList{}, nil}, {&v1alpha1.PodIPPoolList{}, nil},
		{&corev1.NodeList{}, nil}, {&corev1.PodList{}, []client.ListOption{client.MatchingFieldsSelector{Selector: pods}}},
		{&corev1.PodList{}, []client.ListOption{client.InNamespace("kube-system"), client.MatchingLabels{"k8s-app": "cilium"}}},
	}
	err = harness.Parallel(ctx, len(reads), len(reads), func(ctx context.Context, i int) error {
		// Version 0: from the API server's own cache, as an informer reads.
		cached := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
		return c.List(ctx, reads[i].list, append([]client.ListOption{cached}, reads[i].options...)...)
	})
	if err == nil {
		f.say("read")
	}
	return err
}

// Watch takes in every event of CiliumNodes and pods, and throws it away.
func Watch(ctx context.Context, f *Floor) error {
	nodes, err := bed.Follow(ctx, f.config, bed.CiliumNodes, "")
	if err != nil {
		return err
	}
	pods, err := bed.Follow(ctx, f.config, podsPath, podFields)
	if err != nil {
		return err
	}
	f.say("ready")
	watches := []*bed.Follower{nodes, pods}
	return harness.Parallel(ctx, len(watches), len(watches), func(ctx context.Context, i int) error {
		return watches[i].Run(ctx, func([]byte) {})
	})
}

// React claims a block for the node of every pod that is bound from now on, and
// publishes it.
func React(ctx context.Context, f *Floor) error {
	return f.react(ctx, podsPath, podFields, func(event []byte) string { return after(string(event), `"nodeName":"`) },
		func(ctx context.Context, i int) error {
			if err := f.createBlock(ctx, i); err != nil {
				return err
			}
			return f.publish(ctx, i)
		})
}

// Serve is Allocate, unless nodes have their first block, and then a second block for every
// node whose agent requests it.
func Serve(ctx context.Context, f *Floor) error {
	if f.world.Blocks == 0 {
		if err := Allocate(ctx, f); err != nil {
			return err
		}
	}
	second := *f
	second.world.Blocks = 1
	two := bed.World{Blocks: 2}.Requested()[0].Needed.IPv4Addrs
	asked := fmt.Appendf(nil, `"needed":{"ipv4-addrs":%d}`, two)
	return f.react(ctx, bed.CiliumNodes, "", func(event []byte) string {
		if !bytes.Contains(event, asked) {
			return ""
		}
		return bed.Name(event)
	}, second.allocate)
}

// react does something, once, for every node that an event from now on names.
func (f *Floor) react(ctx context.Context, path, selector string, named func(event []byte) string, do func(ctx context.Context, i int) error) error {
	events, err := bed.Follow(ctx, f.config, path, selector)
	if err != nil {
		return err
	}
	if err := f.connect(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan int, f.world.Nodes)
	defer close(queue)
	for range Workers {
		go func() {
			for i := range queue {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		}()
	}
	f.say("ready")
	seen := map[int]bool{}
	err = events.Run(ctx, func(event []byte) {
		if i, ok := numberOf(named(event)); ok && !seen[i] {
			seen[i] = true
			queue <- i
		}
	})
	if err == nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		err = context.Cause(ctx)
	}
	return err
}

// numberOf returns the number of a node, with which its name ends.
func numberOf(node string) (int, bool) {
	i, err := strconv.Atoi(node[strings.LastIndexByte(node, '-')+1:])
	return i, err == nil
}

func after(text, mark string) string {
	_, rest, _ := strings.Cut(text, mark)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
