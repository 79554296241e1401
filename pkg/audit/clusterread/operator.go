package clusterread

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
)

// Operator is the operator's mode and settings, as the cluster shows them.
type Operator struct {
	Found
	// Settings are the operator's, or the default ones: then NoSettings says why.
	Settings config.Settings
	// OtherCRDs are a line for each CRD that the operator was not built with.
	OtherCRDs []string
}

// Find reads the operator's mode and settings.
func Find(ctx context.Context, c client.Reader, w Where) (Operator, error) {
	o := Operator{Settings: config.DefaultSettings()}
	var err error
	if o.Found, err = find(ctx, c, w); err != nil {
		return o, err
	}
	if o.NoSettings == "" {
		if o.Settings, err = config.ReadPublished(o.Published); err != nil {
			o.NoSettings = err.Error()
		}
	}
	o.Settings.Mode = o.Mode
	o.findSchemas(ctx, c)
	return o, nil
}

// findSchemas looks for CRDs that the operator was not built with. It skips this for
// users who may not read CRDs.
func (o *Operator) findSchemas(ctx context.Context, c client.Reader) {
	for _, name := range slices.Sorted(maps.Keys(o.Settings.CRDSchemas)) {
		served, err := crds.Served(ctx, c, name)
		if words := crds.Mismatch(name, served, o.Settings.CRDSchemas[name]); err == nil && words != "" {
			o.OtherCRDs = append(o.OtherCRDs, words)
		}
	}
}

// ModeUnknown explains why the mode may differ from the one found; "": it is known.
func (o Operator) ModeUnknown() string {
	if o.Denied == "" {
		return ""
	}
	return fmt.Sprintf("%s may not be read: the operator is assumed to run in mode %s; --mode sets another", o.Denied, o.Mode)
}

// SettingsUnknown explains why the settings may differ from the defaults; "": they
// are known.
func (o Operator) SettingsUnknown() string {
	if o.NoSettings == "" {
		return ""
	}
	return fmt.Sprintf("the operator's settings are not known, as %s: its defaults are assumed", o.NoSettings)
}
