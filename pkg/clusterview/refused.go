package clusterview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// refusedFor is the time that an event about a refused write counts: slightly longer than until the
// operator sends it again.
const refusedFor = config.RefusalAgain + 5*time.Minute

// RefusedWrite is a write by the operator that the API server refuses.
type RefusedWrite struct {
	Kind, Name string
	// Note is the event's text, and At is when it was last sent.
	Note string
	At   time.Time
}

// ReadRefusedWrites reads from events which writes the API server refuses, by object. It
// returns none if the user may not list events.
func (c *Cluster) ReadRefusedWrites(ctx context.Context) ([]RefusedWrite, error) {
	last := map[string]RefusedWrite{}
	for _, reason := range []string{config.ReasonWriteRefused, config.ReasonWriteAccepted} {
		list := &corev1.EventList{}
		err := c.Client.List(ctx, list, client.InNamespace(metav1.NamespaceDefault), client.MatchingFields{"reason": reason})
		if apierrors.IsForbidden(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing events: %w", err)
		}
		for i := range list.Items {
			e := &list.Items[i]
			write := RefusedWrite{Kind: e.InvolvedObject.Kind, Name: e.InvolvedObject.Name, At: LastOf(e)}
			if reason == config.ReasonWriteRefused {
				write.Note = termsafe.Line(e.Message)
			}
			if key := write.Kind + "/" + write.Name; !write.At.Before(last[key].At) {
				last[key] = write
			}
		}
	}
	var refused []RefusedWrite
	for _, write := range last {
		if write.Note != "" && c.Now.Sub(write.At) < refusedFor {
			refused = append(refused, write)
		}
	}
	slices.SortFunc(refused, func(a, b RefusedWrite) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return refused, nil
}

// RefusedAbout returns the refused writes about a node or its blocks.
func (c *Cluster) RefusedAbout(node string, refused []RefusedWrite) []RefusedWrite {
	objects := map[string]bool{"Node/" + node: true}
	for _, b := range c.State.Ledger.NodeBlocks(node) {
		objects["PodIPBlock/"+b.Name] = true
	}
	return slices.DeleteFunc(slices.Clone(refused), func(write RefusedWrite) bool { return !objects[write.Kind+"/"+write.Name] })
}

// LastOf returns when an event was last observed.
func LastOf(e *corev1.Event) time.Time {
	last := e.EventTime.Time
	if e.LastTimestamp.After(last) {
		last = e.LastTimestamp.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	if last.IsZero() {
		return e.CreationTimestamp.Time
	}
	return last
}
