package config

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// published is written by the leading operator to its Lease, so that tools decide as it
// does. Keys are the names of the operator's flags.
type published struct {
	Version string          `json:"version"`
	Commit  string          `json:"commit,omitempty"`
	Mode    ciliumnode.Mode `json:"mode"`
	Paused  bool            `json:"paused"`
	Shadow  bool            `json:"shadow"`
	AnyMode bool            `json:"skip-cilium-check"`

	CRDSchemas map[string]string `json:"crd-schemas,omitempty"`

	ExpandPercent   int                    `json:"expand-threshold-percent"`
	MinFree         int                    `json:"expand-min-free-addresses"`
	MaxBlocks       int                    `json:"expand-max-blocks-per-node"`
	MaxAddresses    int                    `json:"max-addresses-per-node"`
	ReclaimPolicy   v1alpha1.ReclaimPolicy `json:"reclaim-policy"`
	ReclaimPercent  int                    `json:"reclaim-threshold-percent"`
	IdleFor         metav1.Duration        `json:"reclaim-idle-for"`
	PressurePercent int                    `json:"reclaim-pressure-percent"`
	PerMinute       int                    `json:"reclaims-per-minute"`
	PerPool         int                    `json:"reclaims-per-minute-per-pool"`

	Windows       []v1alpha1.MaintenanceWindow `json:"maintenance-windows"`
	BlocksPerHour int                          `json:"maintenance-blocks-per-hour"`

	AckHold          metav1.Duration `json:"ack-hold"`
	AckTimeout       metav1.Duration `json:"ack-timeout"`
	Cooldown         metav1.Duration `json:"cooldown"`
	NodeGoneCooldown metav1.Duration `json:"node-gone-cooldown"`

	AgentNamespace    string          `json:"cilium-namespace"`
	AgentSelector     string          `json:"agent-selector"`
	AgentSettle       metav1.Duration `json:"agent-settle-time"`
	KeepCiliumPools   bool            `json:"keep-cilium-pod-ip-pools"`
	ParkBlocks        bool            `json:"park-draining-blocks"`
	CompactBlocks     bool            `json:"compact-blocks"`
	FRRNamespace      string          `json:"frr-k8s-namespace"`
	KeepManagedFields bool            `json:"keep-managed-fields"`

	IgnoreTaints  []string `json:"ignore-node-taints"`
	StartupTaints []string `json:"startup-taints"`
	NodeCondition bool     `json:"node-condition"`
	ShortageTaint string   `json:"shortage-taint"`
	OfferFamilies []string `json:"scheduling-families"`
}

// Publish writes the settings as ReadPublished reads them. Processes with the same
// flags write the same.
func (s *Settings) Publish() (string, error) {
	p := &s.Defaults.Policy
	d := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	selector := ""
	if s.AgentSelector != nil {
		selector = s.AgentSelector.String()
	}
	var families []string
	for _, f := range s.OfferFamilies {
		families = append(families, f.String())
	}
	body, err := json.Marshal(published{
		Version: s.Version, Commit: s.Commit, Mode: s.Mode, Paused: s.Paused, Shadow: s.Shadow, AnyMode: s.SkipModeCheck, CRDSchemas: s.CRDSchemas,
		ExpandPercent: p.ExpandPercent, MinFree: p.MinFree, MaxBlocks: p.MaxBlocks, MaxAddresses: p.MaxAddresses,
		ReclaimPolicy: v1alpha1.ReclaimPolicyOf(p.ReclaimDisabled), ReclaimPercent: p.ReclaimPercent, IdleFor: d(p.IdleFor),
		PressurePercent: p.PressurePercent, PerMinute: s.ReclaimsPerMinute, PerPool: s.ReclaimsPerMinutePerPool,
		Windows: s.Windows, BlocksPerHour: s.Defaults.Maintenance.BlocksPerHour,
		AckHold: d(p.AckHold), AckTimeout: d(p.AckTimeout), Cooldown: d(s.Defaults.Cooldown), NodeGoneCooldown: d(s.Defaults.NodeGoneCooldown),
		AgentNamespace: s.AgentNamespace, AgentSelector: selector, AgentSettle: d(s.AgentSettle), KeepCiliumPools: s.KeepCiliumPools, ParkBlocks: s.ParkBlocks, CompactBlocks: s.CompactBlocks,
		FRRNamespace: s.FRRNamespace, KeepManagedFields: s.KeepManagedFields,
		IgnoreTaints: s.IgnoreTaints, StartupTaints: s.StartupTaints, NodeCondition: s.NodeCondition, ShortageTaint: s.ShortageTaint,
		OfferFamilies: families,
	})
	return string(body), err
}

// ReadPublished reads the published form of an operator, perhaps of another version.
// DefaultSettings fill in missing settings.
func ReadPublished(body string) (Settings, error) {
	s := DefaultSettings()
	defaults, err := s.Publish()
	if err != nil {
		return s, err
	}
	var p published
	for _, body := range []string{defaults, body} {
		if err := json.Unmarshal([]byte(body), &p); err != nil {
			return DefaultSettings(), fmt.Errorf("reading the operator's settings: %w", err)
		}
	}
	s.Version = p.Version
	s.Commit = p.Commit
	s.Mode = p.Mode
	s.Paused = p.Paused
	s.Shadow = p.Shadow
	s.SkipModeCheck = p.AnyMode
	s.CRDSchemas = p.CRDSchemas
	policy := &s.Defaults.Policy
	policy.ExpandPercent = p.ExpandPercent
	policy.MinFree = p.MinFree
	policy.MaxBlocks = p.MaxBlocks
	policy.MaxAddresses = p.MaxAddresses
	policy.ReclaimDisabled = p.ReclaimPolicy == v1alpha1.ReclaimNever
	policy.ReclaimPercent = p.ReclaimPercent
	policy.IdleFor = p.IdleFor.Duration
	policy.PressurePercent = p.PressurePercent
	policy.AckHold = p.AckHold.Duration
	policy.AckTimeout = p.AckTimeout.Duration
	s.ReclaimsPerMinute = p.PerMinute
	s.ReclaimsPerMinutePerPool = p.PerPool
	s.Defaults.Maintenance.BlocksPerHour = p.BlocksPerHour
	s.Defaults.Cooldown = p.Cooldown.Duration
	s.Defaults.NodeGoneCooldown = p.NodeGoneCooldown.Duration
	s.AgentNamespace = p.AgentNamespace
	s.AgentSettle = p.AgentSettle.Duration
	s.KeepCiliumPools = p.KeepCiliumPools
	s.ParkBlocks = p.ParkBlocks
	s.CompactBlocks = p.CompactBlocks
	s.KeepManagedFields = p.KeepManagedFields
	s.FRRNamespace = p.FRRNamespace
	s.IgnoreTaints = p.IgnoreTaints
	s.StartupTaints = p.StartupTaints
	s.NodeCondition = p.NodeCondition
	s.ShortageTaint = p.ShortageTaint
	s.OfferFamilies = FamiliesNamed(p.OfferFamilies)
	if s.AgentSelector, err = labels.Parse(p.AgentSelector); err != nil {
		return DefaultSettings(), fmt.Errorf("reading the operator's settings: agent-selector: %w", err)
	}
	if err := policy.Validate(); err != nil {
		return DefaultSettings(), fmt.Errorf("reading the operator's settings: %w", err)
	}
	if s.Windows = p.Windows; len(p.Windows) > 0 {
		if s.Defaults.Maintenance.Windows, err = crd.WindowsFrom(p.Windows, field.NewPath("windows")); err != nil {
			return DefaultSettings(), fmt.Errorf("reading the operator's settings: maintenance-windows: %w", err)
		}
	}
	return s, nil
}
