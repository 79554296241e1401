package frrconfig

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// The kinds of the reports of frr-k8s: what it makes of the FRRConfigurations of a node, and its BGP sessions
// (api/v1beta1 of frr-k8s v0.0.25).
const (
	NodeStateKind    = "FRRNodeState"
	SessionStateKind = "BGPSessionState"
)

// ReportKinds returns the kinds of reports.
func ReportKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{Kind.GroupVersion().WithKind(NodeStateKind), Kind.GroupVersion().WithKind(SessionStateKind)}
}

// maxFault bounds Report.Fault, in bytes: frr-k8s quotes its whole log.
const maxFault = 300

// Report is an FRRNodeState or a BGPSessionState.
type Report struct {
	Kind, Namespace, Name, Node string
	// Fault is the error or the state of the session; "": all is well, or unknown yet.
	Fault string
}

// ReadReport reads an object of one of ReportKinds.
func ReadReport(obj *unstructured.Unstructured) Report {
	status := func(field string) string {
		value, _, _ := unstructured.NestedString(obj.Object, "status", field)
		return value
	}
	r := Report{Kind: obj.GetKind(), Namespace: obj.GetNamespace(), Name: obj.GetName(), Node: cmp.Or(status("node"), obj.GetName())}
	conversion := status("lastConversionResult")
	reload := status("lastReloadResult")
	session := status("bgpStatus")
	switch {
	case r.Kind == SessionStateKind && session != "" && session != "Established":
		r.Fault = fmt.Sprintf("the session with %s is %s", status("peer"), session)
	case r.Kind == NodeStateKind && conversion != "" && conversion != "success":
		r.Fault = "frr-k8s cannot convert the FRRConfigurations: " + conversion
	case r.Kind == NodeStateKind && reload != "" && reload != "success":
		r.Fault = "FRR does not load its configuration: " + reload
	}
	r.Fault = termsafe.Cut(r.Fault, maxFault)
	return r
}
