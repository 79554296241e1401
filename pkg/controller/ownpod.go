package controller

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

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
