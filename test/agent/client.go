package agent

import (
	"fmt"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewClient returns a client for many agents: it knows corev1 and Cilium's v2
// types and sets no rate limit of its own.
func NewClient(cfg *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, ciliumv2.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build scheme: %w", err)
		}
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	cfg.WarningHandler = rest.NoWarnings{}
	return client.NewWithWatch(cfg, client.Options{Scheme: scheme})
}
