package controller

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/informer"
	requests "github.com/cilium-pool/cilium-pool-operator/pkg/controller/webhook"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Scheduling checks whether admission policies can make pods request addresses, unless a webhook does.
// The chart installs them; Kubernetes serves their kind since 1.36.
type Scheduling struct {
	Mapper  meta.RESTMapper
	Webhook bool
	// Families are the families that Nodes should offer addresses of.
	Families []ipalloc.Family
}

// offers returns the families that Nodes offer addresses of: none if no policy can make a pod
// request one. It waits until the API server answers, because a missing answer is no reason to
// withdraw an offer. Without Families it returns at once.
func (s Scheduling) offers(ctx context.Context, m *operatorMetrics) []ipalloc.Family {
	if len(s.Families) == 0 || s.Webhook {
		return s.Families
	}
	logger := log.FromContext(ctx).WithName("scheduling")
	kind := schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicy"}
	var served bool
	err := wait.PollUntilContextCancel(ctx, prerequisitesRetry, true, func(context.Context) (bool, error) {
		var err error
		if served, err = informer.Serves(s.Mapper, kind); err != nil {
			logger.Error(err, "asking the API server for "+kind.Kind)
		}
		return err == nil, nil
	})
	if err != nil {
		return nil
	}
	m.noOffers.Set(common.OneIf(!served))
	if served {
		return s.Families
	}
	logger.Error(nil, "--scheduling-families is without effect: the API server serves no MutatingAdmissionPolicy in version v1, as Kubernetes 1.36 does. "+
		"Pods are scheduled without regard to addresses. Use the webhook, or restart the operator once the cluster is upgraded")
	return nil
}

// addWebhook adds the webhook that makes pods request addresses, if the settings name one. All
// replicas serve it, by what their watches have shown.
func addWebhook(mgr manager.Manager, o *Operator, s config.Settings) error {
	if s.Webhook.Name == "" || len(s.OfferFamilies) == 0 {
		return nil
	}
	host, port, err := net.SplitHostPort(s.WebhookAddress)
	if err != nil {
		return fmt.Errorf("reading the webhook's address: %w", err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("reading the webhook's port: %w", err)
	}
	certificate := &requests.Certificate{Service: s.Webhook, Live: mgr.GetAPIReader(), Writer: mgr.GetClient(), Clock: clock.RealClock{}}
	server := webhook.NewServer(webhook.Options{Host: host, Port: number, TLSOpts: []func(*tls.Config){
		func(c *tls.Config) {
			c.GetCertificate = certificate.Serve
			c.MinVersion = tls.VersionTLS13
		},
	}})
	server.Register(requests.Path, &admission.Webhook{Handler: &requests.Requests{Cluster: &o.Node.Cluster, Families: s.OfferFamilies}})
	// Until there is one and all objects have been read, the API server asks another replica: during an upgrade, too.
	return errors.Join(mgr.AddReadyzCheck("webhook", certificate.Ready), mgr.Add(certificate), mgr.Add(server))
}

// ownPod is the Pod that the operator runs in, as its token names it. Zero: it runs in none.
type ownPod struct {
	live            client.Reader
	namespace, name string
}

// podOf reads the claims of the operator's bound ServiceAccount token.
func podOf(config *rest.Config, live client.Reader) ownPod {
	token := config.BearerToken
	if data, err := os.ReadFile(config.BearerTokenFile); err == nil {
		token = string(data)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ownPod{}
	}
	var claims struct {
		Kubernetes struct {
			Namespace string
			Pod       struct{ Name string }
		} `json:"kubernetes.io"`
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(data, &claims) != nil {
		return ownPod{}
	}
	return ownPod{live, claims.Kubernetes.Namespace, claims.Kubernetes.Pod.Name}
}

// tolerates reports whether the Pod may run on Nodes with the shortage taint; "": none. Once all
// Nodes have it, a Pod that may not is never started again, and only the operator removes the taint. It
// waits until the API server answers, and logs all taints that could keep the Pod off all Nodes.
func (p ownPod) tolerates(ctx context.Context, shortage string, startup []string) bool {
	if p.name == "" {
		return true
	}
	logger := log.FromContext(ctx).WithName("tolerations")
	pods := &corev1.PodList{}
	err := wait.PollUntilContextCancel(ctx, prerequisitesRetry, true, func(ctx context.Context) (bool, error) {
		err := p.live.List(ctx, pods, client.InNamespace(p.namespace), client.MatchingFields{"metadata.name": p.name})
		if err != nil {
			logger.Error(err, "reading the operator's own Pod")
		}
		return err == nil, nil
	})
	if err != nil {
		return false
	}
	tolerated := true
	for _, pod := range pods.Items {
		for _, key := range append([]string{shortage}, startup...) {
			taint := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}
			isFor := func(t corev1.Toleration) bool { return t.ToleratesTaint(logger, &taint, false) }
			if key == "" || slices.ContainsFunc(pod.Spec.Tolerations, isFor) {
				continue
			}
			effect := "new Nodes with it cannot run the operator"
			if key == shortage {
				tolerated = false
				effect = "the operator does not set it (--shortage-taint)"
			}
			logger.Error(nil, "the operator's Pod does not tolerate a taint: add {key: "+key+", operator: Exists} to its tolerations", "until then", effect)
		}
	}
	return tolerated
}
