package whois

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
)

// pastPod is a pod that had an address, or an agent's own use such as "router".
type pastPod struct {
	Name string `json:"name"`
	Node string `json:"node"`
	// Since is when it started; nil: unknown, and it uses the address now.
	Since *time.Time `json:"since,omitempty"`
	// Until is when its last container ended.
	Until *time.Time `json:"until,omitempty"`
	// Ended: it no longer runs.
	Ended bool `json:"ended,omitempty"`
}

// pastEvent is an event about a pod that names an address.
type pastEvent struct {
	Pod  string    `json:"pod"`
	Time time.Time `json:"time"`
	Says string    `json:"says"`
}

// addPastUsers adds to p the pods that still exist, and events.
func addPastUsers(ctx context.Context, c *cluster.Cluster, a netip.Addr, p *past) error {
	users := usersOf(c, a)
	if err := readPodStarts(ctx, c, users); err != nil {
		return err
	}
	for _, u := range users {
		if u.Since == nil || !p.At.Before(*u.Since) {
			p.Pods = append(p.Pods, pastPod{Name: u.Name, Node: u.Node, Since: u.Since})
		}
	}
	err := each(ctx, c.Client, &corev1.PodList{}, "status.phase!=Pending,status.phase!=Running", func(o runtime.Object) {
		if u, ok := endedUser(o.(*corev1.Pod), a); ok && u.had(p.At) {
			p.Pods = append(p.Pods, u)
		}
	})
	if err != nil {
		return fmt.Errorf("listing pods that have ended: %w", err)
	}
	named := naming(a)
	err = each(ctx, c.Client, &corev1.EventList{}, "involvedObject.kind=Pod", func(o runtime.Object) {
		if ev := o.(*corev1.Event); named.MatchString(ev.Message) {
			pod := ev.InvolvedObject.Namespace + "/" + ev.InvolvedObject.Name
			p.Events = append(p.Events, pastEvent{Pod: pod, Time: cluster.LastOf(ev).UTC(), Says: ev.Message})
		}
	})
	if apierrors.IsForbidden(err) {
		p.Unread = "you may not list them"
		return nil
	}
	slices.SortFunc(p.Events, func(a, b pastEvent) int { return a.Time.Compare(b.Time) })
	return err
}

// each calls take for all objects of a list, page by page.
func each(ctx context.Context, c client.Reader, list client.ObjectList, selector string, take func(runtime.Object)) error {
	selected, err := fields.ParseSelector(selector)
	if err != nil {
		return err
	}
	page := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		l := list.DeepCopyObject().(client.ObjectList)
		return l, c.List(ctx, l, &client.ListOptions{FieldSelector: selected, Limit: o.Limit, Continue: o.Continue})
	}
	return pager.New(page).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		take(o)
		return nil
	})
}

// endedUser returns a pod that no longer runs, if it had the address. Its status keeps that for
// as long as the pod exists.
func endedUser(pod *corev1.Pod, a netip.Addr) (pastPod, bool) {
	had := slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool {
		addr, err := netip.ParseAddr(ip.IP)
		return err == nil && addr.Unmap() == a
	})
	u := pastPod{Name: pod.Namespace + "/" + pod.Name, Node: pod.Spec.NodeName, Ended: true}
	if pod.Status.StartTime != nil {
		since := pod.Status.StartTime.UTC()
		u.Since = &since
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := s.State.Terminated; t != nil && (u.Until == nil || t.FinishedAt.After(*u.Until)) {
			until := t.FinishedAt.UTC()
			u.Until = &until
		}
	}
	return u, had && u.Since != nil
}

// had reports whether the pod may have had its address at an instant.
func (u *pastPod) had(at time.Time) bool {
	return !at.Before(*u.Since) && (u.Until == nil || !at.After(*u.Until))
}

func (u *pastPod) sentence() string {
	switch {
	case u.Since == nil:
		return fmt.Sprintf("%s on node %s uses it now; since when is not known.", u.Name, u.Node)
	case !u.Ended:
		return fmt.Sprintf("%s on node %s had it: it has run since %s, and uses it still.", u.Name, u.Node, instant(*u.Since))
	case u.Until == nil:
		return fmt.Sprintf("%s on node %s may have had it: it ran from %s on, and has ended.", u.Name, u.Node, instant(*u.Since))
	}
	return fmt.Sprintf("%s on node %s had it: it ran from %s until %s.", u.Name, u.Node, instant(*u.Since), instant(*u.Until))
}

// naming matches an address in a text, but not one that begins or ends like it.
func naming(a netip.Addr) *regexp.Regexp {
	name := regexp.QuoteMeta(a.String())
	if a.Is6() {
		return regexp.MustCompile(`(?i)(^|[^0-9a-f:])` + name + `($|[^0-9a-f:])`)
	}
	return regexp.MustCompile(`(^|[^0-9.])` + name + `\.?($|[^0-9.])`)
}
