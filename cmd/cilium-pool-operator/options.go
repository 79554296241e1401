package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// options holds the command line.
type options struct {
	kubeconfig string
	qps        float32
	burst      int

	leaderElect    bool
	leaseNamespace string
	leaseName      string
	leaseDuration  time.Duration

	metricsAddr    string
	metricsSecure  bool
	metricsCertDir string
	healthAddr     string
	logLevel       string
	logFormat      string

	mode          string
	agentSelector string
	reclaimPolicy string
	windows       string
	families      []string // address families that Nodes offer
	webhook       string
	settings      config.Settings
	version       bool
	// recovery holds back changes after a restore of etcd; nil: it leads no election, or changes nothing.
	recovery *state.Recovery
	// history recognizes a restore of etcd; nil: it leads no election.
	history *leaseHistory
	// end ends the process for a reason; nil: it leads no election.
	end context.CancelCauseFunc
}

func defaultOptions() *options {
	settings := config.DefaultSettings()
	settings.Version = version
	settings.Commit = revision()
	settings.Registry = metrics.Registry
	return &options{
		qps: -1, burst: 0,
		leaderElect: true, leaseName: "cilium-pool-operator", leaseDuration: 15 * time.Second,
		metricsAddr: ":9870", metricsSecure: true, healthAddr: ":9871",
		logLevel: "info", logFormat: "json",
		mode: string(settings.Mode), agentSelector: settings.AgentSelector.String(), reclaimPolicy: string(v1alpha1.ReclaimWhenIdle), windows: "[]",
		settings: settings,
	}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	s := &o.settings
	p := &o.settings.Defaults.Policy
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "path of a kubeconfig; empty: the pod's service account, or $KUBECONFIG")
	fs.Float32Var(&o.qps, "kube-api-qps", o.qps, "requests per second to the API server; below 0: as many as its priority and fairness lets through")
	fs.IntVar(&o.burst, "kube-api-burst", o.burst, "requests allowed at once above --kube-api-qps")
	fs.BoolVar(&o.leaderElect, "leader-elect", o.leaderElect, "let one of several replicas act at a time")
	fs.StringVar(&o.leaseNamespace, "leader-elect-namespace", o.leaseNamespace, "namespace of the Lease; empty: the pod's own, or kube-system outside a cluster")
	fs.StringVar(&o.leaseName, "leader-elect-name", o.leaseName, "name of the Lease")
	fs.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", o.leaseDuration, "time for which a silent leader keeps the lead, 3s to 5m")
	fs.StringVar(&o.metricsAddr, "metrics-bind-address", o.metricsAddr, "address of the metrics endpoint /metrics; 0: none")
	fs.BoolVar(&o.metricsSecure, "metrics-secure", o.metricsSecure, "serve metrics by HTTPS, and only to clients with the right to get /metrics")
	fs.StringVar(&o.metricsCertDir, "metrics-cert-dir", o.metricsCertDir, "folder with tls.crt and tls.key for the metrics; empty: a self-signed certificate, generated at startup")
	fs.StringVar(&o.healthAddr, "health-probe-bind-address", o.healthAddr, "address of /healthz and /readyz; 0: none")
	fs.StringVar(&o.logLevel, "log-level", o.logLevel, "debug, info, warn or error")
	fs.StringVar(&o.logFormat, "log-format", o.logFormat, "json or console")
	fs.BoolVar(&s.Paused, "paused", s.Paused, "watch, and change no node and no block")
	fs.BoolVar(&s.Shadow, "shadow", s.Shadow, "decide, report how nodes differ from the decisions, and write no node and no block; in any IPAM mode of Cilium")
	fs.IntVar(&s.NodeWorkers, "node-workers", s.NodeWorkers, "nodes worked on at once, 1 to 1024")

	fs.IntVar(&p.ExpandPercent, "expand-threshold-percent", p.ExpandPercent, "share of a node's addresses in use above which it gets another block; pools may say otherwise")
	fs.IntVar(&p.MinFree, "expand-min-free-addresses", p.MinFree, "addresses a node keeps free at least; pools may say otherwise")
	fs.IntVar(&p.MaxBlocks, "expand-max-blocks-per-node", p.MaxBlocks, "blocks a node may hold per address family; pools may say otherwise")
	fs.IntVar(&p.MaxAddresses, "max-addresses-per-node", p.MaxAddresses, "addresses published per node and family, which bounds the size of its CiliumNode; 1 to 8192")
	fs.StringVar(&o.reclaimPolicy, "reclaim-policy", o.reclaimPolicy, "blocks that are taken back: WhenIdle, or Never, unless asked for by hand; pools may say otherwise")
	fs.IntVar(&p.ReclaimPercent, "reclaim-threshold-percent", p.ReclaimPercent, "a block is taken back when the node's others stay at or below this share in use without it; pools may say otherwise")
	fs.DurationVar(&p.IdleFor, "reclaim-idle-for", p.IdleFor, "time for which that must hold without interruption; pools may say otherwise")
	fs.Var(limit{&s.ReclaimsPerMinute, v1alpha1.Unlimited, 1_000_000}, "reclaims-per-minute", "reclaims that may start per minute in the whole cluster, or Unlimited")
	fs.Var(limit{&s.ReclaimsPerMinutePerPool, v1alpha1.Unlimited, 1_000_000}, "reclaims-per-minute-per-pool", "the same for each pool")
	fs.Var(limit{&p.PressurePercent, v1alpha1.Never, 100}, "reclaim-pressure-percent", "share of a pool's blocks taken above which --reclaim-idle-for shrinks, down to a tenth in a full pool, or Never; pools may say otherwise")
	fs.StringVar(&o.windows, "maintenance-windows", o.windows, "JSON list of when blocks may begin to leave their nodes, each as in {\"schedule\":\"0 22 * * mon-fri\",\"duration\":\"6h\",\"timeZone\":\"UTC\"}; empty: at any time; pools may say otherwise")
	fs.Var(limit{&s.Defaults.Maintenance.BlocksPerHour, v1alpha1.Unlimited, 1_000_000}, "maintenance-blocks-per-hour", "blocks of each pool that may begin to leave their nodes in an hour, be it by a reclaim or a drain, or Unlimited; pools may say otherwise")
	fs.DurationVar(&p.AckHold, "ack-hold", p.AckHold, "time between the agent's agreement to release an address and its removal from the pool")
	fs.DurationVar(&p.AckTimeout, "ack-timeout", p.AckTimeout, "time to wait for the agent's answer before the next request; at least twice the agents' --ipam-cilium-node-update-rate")
	fs.DurationVar(&s.Defaults.Cooldown, "cooldown", s.Defaults.Cooldown, "time for which a returned block cools down before another node may have it; pools may say otherwise")
	fs.DurationVar(&s.Defaults.NodeGoneCooldown, "node-gone-cooldown", s.Defaults.NodeGoneCooldown, "the same for blocks of a deleted Node: its machine may still run")

	fs.StringVar(&o.mode, "mode", o.mode, "IPAM mode of the Cilium agents, as in Cilium's ipam.mode: crd, multi-pool, delegated-plugin or kubernetes; or observe, to only count what any Cilium assigns")
	fs.BoolVar(&s.KeepCiliumPools, "keep-cilium-pod-ip-pools", s.KeepCiliumPools, "in multi-pool and delegated-plugin mode, create and delete the CiliumPodIPPools that agents need, except those without the operator's label; false: you do")
	fs.StringVar(&s.FRRNamespace, "frr-k8s-namespace", s.FRRNamespace, "namespace of frr-k8s, for which the operator writes FRRConfigurations that announce the blocks of each node, from the templates there; empty: none")
	fs.BoolVar(&s.ParkBlocks, "park-draining-blocks", s.ParkBlocks, "in multi-pool mode, take blocks that drain off their agent's list for a second, by moving them to a reserved pool, so that no new pod gets an address of them")
	fs.BoolVar(&s.CompactBlocks, "compact-blocks", s.CompactBlocks, "with --park-draining-blocks, also drain a block in use that its node can do without, by reclaim.* and the maintenance windows; not where Cilium's BGP control plane runs")
	fs.BoolVar(&s.KeepManagedFields, "keep-managed-fields", s.KeepManagedFields, "in crd mode, keep metadata.managedFields of CiliumNodes; false: the next write of a pool removes them, unless a client applies the object")
	fs.StringVar(&s.AgentNamespace, "cilium-namespace", s.AgentNamespace, "namespace of the Cilium agents and of the ConfigMap cilium-config")
	fs.StringVar(&o.agentSelector, "agent-selector", o.agentSelector, "label selector of the Cilium agents' pods")
	fs.DurationVar(&s.AgentSettle, "agent-settle-time", s.AgentSettle, "time for which an agent must be Ready before addresses of its node are marked for release")
	fs.BoolVar(&s.SkipModeCheck, "skip-cilium-check", s.SkipModeCheck, "start, without a report, although Cilium is configured for another IPAM mode than --mode")
	fs.StringSliceVar(&s.IgnoreTaints, "ignore-node-taints", s.IgnoreTaints, "keys of taints of Nodes that Cilium does not run on")
	fs.StringSliceVar(&s.StartupTaints, "startup-taints", s.StartupTaints, "keys of taints of Nodes with labels that are not final: such a Node gets its first block once they are gone; empty: at once")
	fs.BoolVar(&s.NodeCondition, "node-condition", s.NodeCondition, "report a shortage of addresses as the Node condition cilium-pool.io/PodAddressShortage")
	fs.StringVar(&s.ShortageTaint, "shortage-taint", s.ShortageTaint, "key of a NoSchedule taint for Nodes with pods that cannot get an address; empty: none")
	fs.StringSliceVar(&o.families, "scheduling-families", o.families, "families (ipv4, ipv6) that Nodes offer to the scheduler, as the resources cilium-pool.io/ipv4 and cilium-pool.io/ipv6, and for Cilium pool blue blue.cilium-pool.io/ipv4; not with --mode=kubernetes; needs the chart's policies or webhook; empty: none")
	fs.StringVar(&o.webhook, "scheduling-webhook", o.webhook, "namespace/name of the Service, Secret and MutatingWebhookConfiguration of a webhook that makes pods request addresses; empty: policies do")
	fs.StringVar(&s.WebhookAddress, "scheduling-webhook-bind-address", s.WebhookAddress, "address of that webhook")
	fs.BoolVar(&o.version, "version", o.version, "print the version and exit")
}

// limit is the value of a flag: a number from 1 to most, or the word in place of 0.
type limit struct {
	target *int
	word   string
	most   int
}

// Set parses the value.
func (l limit) Set(s string) error {
	n, err := strconv.Atoi(s)
	if s != l.word && (err != nil || n < 1 || n > l.most) {
		return fmt.Errorf("must be from 1 to %d, or %s", l.most, l.word)
	}
	*l.target = n
	return nil
}

func (l limit) String() string {
	if *l.target == 0 {
		return l.word
	}
	return strconv.Itoa(*l.target)
}

// Type names the value in the help text.
func (l limit) Type() string { return "int" }

// policyFlags replaces the fields of a policy by the flags that set them.
var policyFlags = strings.NewReplacer(
	"ExpandPercent", "--expand-threshold-percent", "MinFree", "--expand-min-free-addresses",
	"MaxBlocks", "--expand-max-blocks-per-node", "MaxAddresses", "--max-addresses-per-node",
	"ReclaimPercent", "--reclaim-threshold-percent", "IdleFor", "--reclaim-idle-for",
	"AckHold", "--ack-hold", "AckTimeout", "--ack-timeout",
)

// validate returns all errors of the command line.
func (o *options) validate() error {
	var p config.Problems
	s := &o.settings
	if o.reclaimPolicy != string(v1alpha1.ReclaimWhenIdle) && o.reclaimPolicy != string(v1alpha1.ReclaimNever) {
		p.Bad("reclaim-policy", o.reclaimPolicy, "must be WhenIdle or Never")
	}
	s.Defaults.Policy.ReclaimDisabled = o.reclaimPolicy == string(v1alpha1.ReclaimNever)
	if err := s.Defaults.Policy.Validate(); err != nil {
		p = append(p, errors.New(policyFlags.Replace(err.Error())))
	}
	least := time.Duration(0)
	if ciliumnode.Mode(o.mode).ManyPools() {
		least = crd.MinMultiPoolCooldown
	}
	p.Between("cooldown", s.Defaults.Cooldown, least, 24*time.Hour)
	p.Between("node-gone-cooldown", s.Defaults.NodeGoneCooldown, 0, 7*24*time.Hour)
	p.Between("agent-settle-time", s.AgentSettle, 0, time.Hour)
	p.Between("leader-elect-lease-duration", o.leaseDuration, 3*time.Second, 5*time.Minute)
	if s.NodeWorkers < 1 || s.NodeWorkers > 1024 {
		p.Bad("node-workers", s.NodeWorkers, "must be between 1 and 1024")
	}
	if s.CompactBlocks && !s.ParkBlocks {
		p.Bad("compact-blocks", true, "needs --park-draining-blocks")
	}
	o.validateMaintenance(&p)
	o.validateServing(&p)
	o.validateNames(&p)
	return errors.Join(p...)
}

// validateMaintenance parses the maintenance windows.
func (o *options) validateMaintenance(p *config.Problems) {
	m := &o.settings.Defaults.Maintenance
	var windows []v1alpha1.MaintenanceWindow
	decoder := json.NewDecoder(strings.NewReader(o.windows))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&windows); err != nil || decoder.More() {
		p.Bad("maintenance-windows", o.windows, "must be a JSON list of windows, each with schedule, duration and, if need be, timeZone")
		return
	}
	if len(windows) == 0 {
		return
	}
	o.settings.Windows = windows
	var err error
	if m.Windows, err = crd.WindowsFrom(windows, field.NewPath("windows")); err != nil {
		p.Bad("maintenance-windows", o.windows, err.Error())
	}
}

func (o *options) validateServing(p *config.Problems) {
	for _, a := range []struct{ flag, addr string }{
		{"metrics-bind-address", o.metricsAddr}, {"health-probe-bind-address", o.healthAddr},
		{"scheduling-webhook-bind-address", o.settings.WebhookAddress},
	} {
		if _, _, err := net.SplitHostPort(a.addr); err != nil && a.addr != "0" {
			p.Bad(a.flag, a.addr, "must be host:port, :port, or 0 for none")
		}
	}
	if o.metricsCertDir != "" && !o.metricsSecure {
		p.Bad("metrics-cert-dir", o.metricsCertDir, "needs --metrics-secure")
	}
	if _, err := zapcore.ParseLevel(o.logLevel); err != nil {
		p.Bad("log-level", o.logLevel, "must be debug, info, warn or error")
	}
	if o.logFormat != "json" && o.logFormat != "console" {
		p.Bad("log-format", o.logFormat, "must be json or console")
	}
}

func (o *options) validateNames(p *config.Problems) {
	if o.settings.Observe = o.mode == clusterread.ObserveMode; !o.settings.Observe {
		var err error
		if o.settings.Mode, err = ciliumnode.ParseMode(o.mode); err != nil {
			p.Bad("mode", o.mode, err.Error()+", or "+clusterread.ObserveMode)
		}
	}
	o.validateFamilies(p)
	selector, err := labels.Parse(o.agentSelector)
	if err != nil {
		p.Bad("agent-selector", o.agentSelector, "must be a label selector, as in k8s-app=cilium: "+err.Error())
	} else if selector.Empty() {
		p.Bad("agent-selector", o.agentSelector, "must be a label selector, as in k8s-app=cilium: every pod would count as an agent")
	}
	o.settings.AgentSelector = selector
	if key := o.settings.ShortageTaint; key != "" {
		for _, problem := range validation.IsQualifiedName(key) {
			p.Bad("shortage-taint", key, "must be the key of a taint: "+problem)
		}
	}
}

// validateFamilies parses the address families that Nodes offer.
func (o *options) validateFamilies(p *config.Problems) {
	s := &o.settings
	s.OfferFamilies = config.FamiliesNamed(o.families)
	if len(s.OfferFamilies) != len(o.families) {
		p.Bad("scheduling-families", strings.Join(o.families, ","), "must be ipv4, ipv6 or both")
	} else if len(o.families) > 0 && (s.Observe || s.Mode == ciliumnode.Kubernetes) {
		p.Bad("scheduling-families", strings.Join(o.families, ","), fmt.Sprintf("with --mode=%s nodes offer no addresses: choose another mode, or leave this empty", o.mode))
	}
	if o.webhook == "" {
		return
	}
	namespace, name, ok := strings.Cut(o.webhook, "/")
	if s.Webhook = (types.NamespacedName{Namespace: namespace, Name: name}); !ok || namespace == "" || name == "" {
		p.Bad("scheduling-webhook", o.webhook, "must be namespace/name")
	}
}
