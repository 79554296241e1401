package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
)

// offLimits keeps the operator from writing the spec of CiliumNode n1.
const offLimits = `
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingAdmissionPolicy
  metadata: {name: off-limits}
  spec:
    matchConstraints:
      resourceRules:
        - {apiGroups: [cilium.io], apiVersions: ["*"], operations: [UPDATE], resources: [ciliumnodes]}
    validations:
      - expression: object.metadata.name != 'n1' || !request.userInfo.username.startsWith('system:serviceaccount:')
        message: n1 is off limits
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingAdmissionPolicyBinding
  metadata: {name: off-limits}
  spec: {policyName: off-limits, validationActions: [Deny]}
`

// refuseN1 makes the API server refuse the operator's writes of n1 until end is called.
func (e *env) refuseN1() (end func()) {
	e.TB.Helper()
	var policy []map[string]any
	e.Must(yaml.Unmarshal([]byte(offLimits), &policy))
	for _, content := range policy {
		o := &unstructured.Unstructured{Object: content}
		e.Create(o)
		e.TB.Cleanup(func() { e.Remove(o) })
	}
	operator, err := client.New(userOf(e.cluster, ciliumnode.CRD), client.Options{Scheme: e.Client.Scheme()})
	e.Must(err)
	try := func() error {
		o := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		return client.NewDryRunClient(operator).Patch(e.Ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ipam":{"podCIDRs":null}}}`)))
	}
	offLimits := func(err error) bool { return err != nil && strings.Contains(err.Error(), "off limits") }
	e.Eventually("the policy is in force", func() error {
		if err := try(); !offLimits(err) {
			return fmt.Errorf("a write of n1: %w", err)
		}
		return nil
	})
	return func() {
		e.TB.Helper()
		for _, content := range policy {
			e.Remove(&unstructured.Unstructured{Object: content})
		}
		e.Eventually("the policy is gone", func() error {
			if err := try(); offLimits(err) {
				return err
			}
			return nil
		})
	}
}

// writesAbout returns the events with a reason about an object.
func (e *env) writesAbout(name, reason string) []eventsv1.Event {
	e.TB.Helper()
	list := &eventsv1.EventList{}
	e.Must(e.Client.List(e.Ctx, list))
	var out []eventsv1.Event
	for _, ev := range list.Items {
		if ev.Regarding.Name == name && ev.Reason == reason {
			out = append(out, ev)
		}
	}
	return out
}

// If a policy refuses the writes of one node, the Node reports it once, however often the
// operator retries; other nodes are served; and everything recovers once the policy is
// removed.
func TestRefusedWrites(t *testing.T) {
	e := newEnv(t)
	var tries atomic.Int32
	op := e.startWith(quick(), func(c client.WithWatch) client.Client {
		return interceptor.NewClient(c, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if _, is := o.(*ciliumv2.CiliumNode); is && o.GetName() == "n1" {
					tries.Add(1)
				}
				return c.Patch(ctx, o, patch, opts...)
			},
		})
	})
	e.pool("p", nil, "10.1.0.0/24")
	for _, name := range []string{"n1", "n2"} {
		e.node(name, nil)
		e.hasBlocks(name, 1)
	}
	end := e.refuseN1()
	before := tries.Load()
	e.Pods("n1", "refused", 40)
	e.Pods("n2", "served", 40)
	e.running("served", 40)
	e.hasBlocks("n2", 2)
	e.eventSays("n1", config.ReasonWriteRefused, "n1 is off limits")
	e.Eventually("the operator has tried again", func() error {
		if tries.Load()-before < 5 {
			return errors.New("not yet")
		}
		return nil
	})
	if sent := e.writesAbout("n1", config.ReasonWriteRefused); len(sent) != 1 || sent[0].Series != nil || sent[0].Regarding.Kind != "Node" ||
		!strings.Contains(sent[0].Note, `write "publish" of CiliumNode n1`) || !strings.Contains(sent[0].Note, "Let the operator's ServiceAccount pass") {
		t.Errorf("events about n1 are %+v, want one that names write and remedy", sent)
	}
	end()
	e.running("refused", 40)
	e.hasBlocks("n1", 2)
	e.event("n1", config.ReasonWriteAccepted)
	op.stop()
	if sent := e.writesAbout("n2", config.ReasonWriteRefused); len(sent) > 0 {
		t.Errorf("n2 has events %+v", sent)
	}
}
