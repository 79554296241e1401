package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/informer"
)

const (
	// prerequisitesRetry is the interval of checks for missing prerequisites.
	prerequisitesRetry = 2 * time.Second
	// prerequisitesReminder is the interval of log lines about missing ones.
	prerequisitesReminder = time.Minute
)

// ErrWrongMode means that Cilium runs in another IPAM mode than the operator.
var ErrWrongMode = errors.New("wrong IPAM mode")

// Prerequisites must exist in the cluster before the operator reads anything. Cilium
// and the operator may be installed in either order, and each waits for the other:
// cilium-operator creates the CiliumNode CRD, and Cilium's agents wait for the
// addresses that the operator assigns.
type Prerequisites struct {
	Mapper meta.RESTMapper
	// Live reads from the API server.
	Live client.Reader
	// Mode is the IPAM mode that Cilium must run in.
	Mode ciliumnode.Mode
	// CiliumNamespace holds the ConfigMap cilium-config.
	CiliumNamespace string
	// Cilium, if set, receives the configuration of Cilium's agents.
	Cilium *ciliumconfig.Latest
	// SkipModeCheck accepts a Cilium in another IPAM mode.
	SkipModeCheck bool
}

// Missing returns a line for each kind that the API server does not serve yet: the kind, and its
// installer. The error means that the API server cannot be reached.
func (p Prerequisites) Missing() ([]string, error) {
	var missing []string
	for _, k := range []struct{ group, version, kind, source string }{
		{"cilium-pool.io", "v1alpha1", "PodIPPool", "install the CRDs of the chart cilium-pool-operator (crds.enabled=true)"},
		{"cilium-pool.io", "v1alpha1", "PodIPBlock", "install the CRDs of the chart cilium-pool-operator (crds.enabled=true)"},
		{"cilium-pool.io", "v1alpha1", "PodIPPin", "install the CRDs of the chart cilium-pool-operator (crds.enabled=true)"},
		{"cilium.io", "v2", "CiliumNode", "install Cilium; its cilium-operator creates this CRD"},
	} {
		found, err := informer.Serves(p.Mapper, schema.GroupVersionKind{Group: k.group, Version: k.version, Kind: k.kind})
		if err != nil {
			return nil, err
		}
		if !found {
			missing = append(missing, fmt.Sprintf("CRD %s.%s/%s: %s", k.kind, k.group, k.version, k.source))
		}
	}
	return missing, nil
}

// ReadMode returns an error if Cilium's configuration names another IPAM mode than the operator's.
// A missing configuration is no error: Cilium may be installed later. It decides by cilium-config
// alone if no other object can be read.
func (p Prerequisites) ReadMode(ctx context.Context) error {
	config, err := ciliumconfig.Read(ctx, p.Live, p.CiliumNamespace, p.Cilium.Get())
	if p.Cilium != nil {
		p.Cilium.Set(config)
	}
	mode := config.Mode(nil)
	if p.SkipModeCheck {
		return nil
	}
	if !config.Known && err != nil {
		return err
	}
	if !config.Known {
		return fmt.Errorf("%s may not be read: install chart and image of one version, which grants it", config.Denied[0])
	}
	if mode == "" || mode == p.Mode.String() {
		return nil
	}
	return fmt.Errorf("%w: Cilium runs with %q (ConfigMap %s/cilium-config, key ipam), in which agents ignore what --mode=%s writes: "+
		"set ipam.mode=%s in Cilium's values, choose another --mode, or use --shadow to observe without writing (docs/migration.md)",
		ErrWrongMode, mode, p.CiliumNamespace, p.Mode, p.Mode)
}

// wait returns once no prerequisite is missing and Cilium's mode is right. It logs the missing
// ones, and sets the gauge prerequisites_missing. An error is final; an interrupt is none.
func (p Prerequisites) wait(ctx context.Context, m *operatorMetrics) error {
	logger := log.FromContext(ctx).WithName("prerequisites")
	var reported []string
	var reportedAt time.Time
	err := wait.PollUntilContextCancel(ctx, prerequisitesRetry, true, func(ctx context.Context) (bool, error) {
		missing, err := p.Missing()
		if err == nil && len(missing) == 0 {
			err = p.ReadMode(ctx)
		}
		switch {
		case errors.Is(err, ErrWrongMode):
			return false, err
		case err != nil:
			missing = []string{"an answer of the API server: " + err.Error()}
		case len(missing) == 0:
			m.missing.Set(0)
			if len(reported) > 0 {
				logger.Info("all prerequisites are there")
			}
			return true, nil
		}
		m.missing.Set(float64(len(missing)))
		if !slices.Equal(missing, reported) || time.Since(reportedAt) >= prerequisitesReminder {
			logger.Info("waiting: no node gets addresses until this is there", "missing", strings.Join(missing, "; "))
			reported = missing
			reportedAt = time.Now()
		}
		return false, nil
	})
	if wait.Interrupted(err) {
		return nil
	}
	return err
}
