package chart

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// With the CRDs of another version the operator reports it, with the rights of the chart, and is
// still Ready. With its own CRDs it makes no report.
func TestCRDsOfAnotherVersion(t *testing.T) {
	b := newBed(t, helm4)
	metrics, health := freePorts(t)
	b.helm("install", release, chart, "-f", writeFile(t, fmt.Sprintf(installValues, metrics, health)))
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "podippools.cilium-pool.io"}}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"older"}}}`, crds.SchemaAnnotation)
	harness.Must(t, b.Client.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(patch))))
	op := b.startOperator("--metrics-bind-address=0")
	b.Eventually("the log names the CRD", func() error {
		if !strings.Contains(op.Log(), "CRD podippools.cilium-pool.io is not the one that this operator was built with (schema served: older;") {
			return errors.New("it does not")
		}
		return nil
	})
	for _, not := range []string{"CRD podipblocks.cilium-pool.io is not the one", "may not read CRD"} {
		if strings.Contains(op.Log(), not) {
			t.Errorf("the log says %q:\n%s", not, op.Log())
		}
	}
}
