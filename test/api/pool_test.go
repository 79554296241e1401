package api

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	// ipv4Pool and ipv6Pool are valid; tests add to them.
	ipv4Pool = "{ipv4: {cidrs: [{cidr: 10.20.0.0/16}], blockSize: 27}"
	ipv6Pool = "{ipv6: {cidrs: [{cidr: 'fd00:10::/48'}], blockSize: 122}"
)

func TestPool(t *testing.T) {
	const (
		labelKey   = "a label key is a name of at most 63 letters"
		labelValue = "a label value is empty or at most 63 letters"
	)
	tests := map[string]struct {
		name string // "pool" if empty
		spec string
		want string
	}{
		"IPv4":       {spec: ipv4Pool + "}"},
		"IPv6":       {spec: ipv6Pool + "}"},
		"dual stack": {spec: ipv4Pool + ", " + ipv6Pool[1:] + "}"},
		"everything stated": {spec: `
nodeSelector:
  matchLabels: {topology.kubernetes.io/zone: beijing, empty: ""}
  matchExpressions:
  - {key: kubernetes.io/arch, operator: In, values: [amd64, arm64]}
  - {key: example.com/gpu, operator: DoesNotExist}
priority: 10
paused: true
ipv4:
  cidrs: [{cidr: 100.66.224.0/19}, {cidr: 100.67.0.0/20, allocationPolicy: Drain}]
  blockSize: 27
  allowFirstIP: true
  allowLastIP: true
reserved: [{cidr: 100.66.224.0/28, description: gateways}, {cidr: 100.67.1.1/32}]
reservedBlockPolicy: PublishRemainder
expand: {thresholdPercent: 80, minFreeAddresses: 4, maxBlocksPerNode: 16}
reclaim: {thresholdPercent: 50, idleFor: 1h10m500ms, policy: Never}
cooldown: 90s`},
		"no addresses":       {spec: "{priority: 1}", want: "set spec.ipv4, spec.ipv6 or both"},
		"no CIDRs":           {spec: "{ipv4: {cidrs: [], blockSize: 27}}", want: "spec.ipv4.cidrs in body should have at least 1 items"},
		"name of 63":         {name: strings.Repeat("a", 63), spec: ipv4Pool + "}"},
		"name of 64":         {name: strings.Repeat("a", 64), spec: ipv4Pool + "}", want: "the name of a PodIPPool is at most 63 characters"},
		"priority too low":   {spec: ipv4Pool + ", priority: -1000001}", want: "spec.priority"},
		"priority too high":  {spec: ipv4Pool + ", priority: 1000001}", want: "spec.priority"},
		"block size missing": {spec: "{ipv4: {cidrs: [{cidr: 10.20.0.0/16}]}}", want: "spec.ipv4.blockSize: Required value"},

		"a pool of Cilium's":           {spec: ipv4Pool + ", ciliumPoolName: team-blue}"},
		"a pool of Cilium's, a domain": {spec: ipv4Pool + ", ciliumPoolName: team.blue}"},
		"a reserved pool":              {spec: ipv4Pool + ", ciliumPoolName: blue.draining.cilium-pool.io}", want: "are the operator's"},
		"a pool of one pod":            {spec: ipv4Pool + ", ciliumPoolName: web.blue.pods.cilium-pool.io}", want: "each is of one owner"},
		"a pool of one pod, old":       {spec: ipv4Pool + ", ciliumPoolName: web.blue.pod.cilium-pool.io}", want: "each is of one owner"},
		"a pool of Cilium's, no name":  {spec: ipv4Pool + ", ciliumPoolName: Team_Blue}", want: "ciliumPoolName is the name of a CiliumPodIPPool"},
		"a pool of Cilium's, empty":    {spec: ipv4Pool + ", ciliumPoolName: ''}", want: "spec.ciliumPoolName in body should be at least 1 chars long"},
		"a pool of Cilium's, too long": {spec: ipv4Pool + ", ciliumPoolName: " + strings.Repeat("a", 254) + "}", want: "spec.ciliumPoolName: Too long"},

		"IPv4 block size 16":  {spec: "{ipv4: {cidrs: [{cidr: 10.20.0.0/16}], blockSize: 16}}"},
		"IPv4 block size 32":  {spec: "{ciliumPoolName: fixed, ipv4: {cidrs: [{cidr: 10.20.0.0/16}], blockSize: 32}}"},
		"IPv4 addresses":      {spec: "{ipv4: {cidrs: [{cidr: 10.20.0.0/16}], blockSize: 32}}", want: "spec.ipv4.blockSize: Invalid value: blockSize is a prefix length: write 27 for blocks of 32 addresses. With 32, each address is a block with a route of its own: that takes podAddresses or a ciliumPoolName"},
		"IPv4 block size 15":  {spec: "{ipv4: {cidrs: [{cidr: 10.20.0.0/15}], blockSize: 15}}", want: "spec.ipv4.blockSize in body should be greater than or equal to 16"},
		"IPv4 block size 33":  {spec: "{ipv4: {cidrs: [{cidr: 10.20.0.0/16}], blockSize: 33}}", want: "spec.ipv4.blockSize in body should be less than or equal to 32"},
		"IPv4 block size 256": {spec: "{ipv4: {cidrs: [{cidr: 10.20.0.0/16}], blockSize: 256}}", want: "blockSize is a prefix length: write 27 for blocks of 32 addresses"},
		"IPv6 block size 48":  {spec: "{ipv6: {cidrs: [{cidr: 'fd00::/48'}], blockSize: 48}}"},
		"IPv6 block size 128": {spec: "{ciliumPoolName: fixed, ipv6: {cidrs: [{cidr: 'fd00::/48'}], blockSize: 128}}"},
		"IPv6 addresses":      {spec: "{ipv6: {cidrs: [{cidr: 'fd00::/48'}], blockSize: 128}}", want: "spec.ipv6.blockSize: Invalid value: blockSize is a prefix length: write 122 for blocks of 64 addresses"},
		"IPv6 block size 47":  {spec: "{ipv6: {cidrs: [{cidr: 'fd00::/47'}], blockSize: 47}}", want: "spec.ipv6.blockSize in body should be greater than or equal to 48"},
		"IPv6 block size 129": {spec: "{ipv6: {cidrs: [{cidr: 'fd00::/48'}], blockSize: 129}}", want: "spec.ipv6.blockSize in body should be less than or equal to 128"},

		"CIDR of one block":         {spec: "{ipv4: {cidrs: [{cidr: 10.20.0.0/27}], blockSize: 27}}"},
		"CIDR below one block":      {spec: "{ipv4: {cidrs: [{cidr: 10.21.0.0/16}, {cidr: 10.20.0.0/28}], blockSize: 27}}", want: "spec.ipv4.cidrs: Invalid value: 10.20.0.0/28 is smaller than one block, a /27: widen or remove it, or raise blockSize"},
		"IPv6 CIDR below one block": {spec: "{ipv6: {cidrs: [{cidr: 'fd00::/123'}], blockSize: 122}}", want: "spec.ipv6.cidrs: Invalid value: fd00::/123 is smaller than one block, a /122: widen or remove it, or raise blockSize"},

		"reclaim equal to expand":   {spec: ipv4Pool + ", expand: {thresholdPercent: 50}, reclaim: {thresholdPercent: 50}}", want: "spec.reclaim.thresholdPercent: Invalid value: reclaim.thresholdPercent must be below expand.thresholdPercent"},
		"reclaim above expand":      {spec: ipv4Pool + ", expand: {thresholdPercent: 50}, reclaim: {thresholdPercent: 80}}", want: "reclaim.thresholdPercent must be below expand.thresholdPercent"},
		"reclaim only":              {spec: ipv4Pool + ", reclaim: {thresholdPercent: 99}}"},
		"expand only":               {spec: ipv4Pool + ", expand: {thresholdPercent: 1}}"},
		"expand 0":                  {spec: ipv4Pool + ", expand: {thresholdPercent: 0}}", want: "spec.expand.thresholdPercent"},
		"expand 101":                {spec: ipv4Pool + ", expand: {thresholdPercent: 101}}", want: "spec.expand.thresholdPercent"},
		"reclaim -1":                {spec: ipv4Pool + ", reclaim: {thresholdPercent: -1}}", want: "spec.reclaim.thresholdPercent"},
		"reclaim 100":               {spec: ipv4Pool + ", reclaim: {thresholdPercent: 100}}", want: "spec.reclaim.thresholdPercent"},
		"reclaim pressure 100":      {spec: ipv4Pool + ", reclaim: {pressurePercent: 100}}"},
		"no reclaim pressure":       {spec: ipv4Pool + ", reclaim: {pressurePercent: Never}}"},
		"reclaim pressure ignored":  {spec: ipv4Pool + ", reclaim: {pressurePolicy: Never}}"},
		"reclaim pressure 0":        {spec: ipv4Pool + ", reclaim: {pressurePercent: 0}}", want: "pressurePercent must be a number from 1 to 100; if idleFor must not shrink, set pressurePolicy: Never"},
		"reclaim pressure 101":      {spec: ipv4Pool + ", reclaim: {pressurePercent: 101}}", want: "spec.reclaim.pressurePercent"},
		"reclaim by another policy": {spec: ipv4Pool + ", reclaim: {policy: Sometimes}}", want: "spec.reclaim.policy: Unsupported value"},
		"minFreeAddresses -1":       {spec: ipv4Pool + ", expand: {minFreeAddresses: -1}}", want: "spec.expand.minFreeAddresses"},
		"minFreeAddresses 4097":     {spec: ipv4Pool + ", expand: {minFreeAddresses: 4097}}", want: "spec.expand.minFreeAddresses"},
		"maxBlocksPerNode 0":        {spec: ipv4Pool + ", expand: {maxBlocksPerNode: 0}}", want: "spec.expand.maxBlocksPerNode"},
		"maxBlocksPerNode 1025":     {spec: ipv4Pool + ", expand: {maxBlocksPerNode: 1025}}", want: "spec.expand.maxBlocksPerNode"},

		"podAddresses":                {spec: "{ipv4: {blockSize: 32, cidrs: [{cidr: 10.0.0.0/24}]}, podAddresses: {podSelector: {matchLabels: {app: web}}, namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}, releaseAfter: Never}}"},
		"podAddresses of blocks":      {spec: ipv4Pool + ", podAddresses: {}}", want: "podAddresses needs blocks of single addresses"},
		"podAddresses of all pods":    {spec: "{ipv4: {blockSize: 32, cidrs: [{cidr: 10.0.0.0/24}]}, podAddresses: {}}", want: "podAddresses without a selector would keep an address for every pod"},
		"podAddresses for a year":     {spec: "{ipv4: {blockSize: 32, cidrs: [{cidr: 10.0.0.0/24}]}, podAddresses: {podSelector: {matchLabels: {app: web}}, releaseAfter: 8761h}}", want: "releaseAfter must be a duration between 0s and 8760h in whole h, m, s or ms, as in 168h or 30m, or Never"},
		"podAddresses by a label":     {spec: "{ipv4: {blockSize: 32, cidrs: [{cidr: 10.0.0.0/24}]}, podAddresses: {podSelector: {matchLabels: {app: web}}, ownerLabel: vm.kubevirt.io/name}}"},
		"podAddresses by no key":      {spec: "{ipv4: {blockSize: 32, cidrs: [{cidr: 10.0.0.0/24}]}, podAddresses: {podSelector: {matchLabels: {app: web}}, ownerLabel: a=b}}", want: "ownerLabel must be the key of a label"},
		"podAddresses by a long key":  {spec: "{ipv4: {blockSize: 32, cidrs: [{cidr: 10.0.0.0/24}]}, podAddresses: {podSelector: {matchLabels: {app: web}}, ownerLabel: " + strings.Repeat("w", 64) + "}}", want: "may not be more than 63"},
		"podAddresses always":         {spec: "{ipv4: {blockSize: 32, cidrs: [{cidr: 10.0.0.0/24}]}, podAddresses: {podSelector: {matchLabels: {app: web}}, releaseAfter: Always}}", want: "releaseAfter must be a duration between 0s and 8760h"},
		"podAddresses for very long":  {spec: "{ipv4: {blockSize: 32, cidrs: [{cidr: 10.0.0.0/24}]}, podAddresses: {releaseAfter: 99999h99999h99999h99999h99999h}}", want: "podAddresses.releaseAfter: Too long"},
		"cooldown 0s":                 {spec: ipv4Pool + ", cooldown: 0s}"},
		"cooldown 24h":                {spec: ipv4Pool + ", cooldown: 24h}"},
		"cooldown 25h":                {spec: ipv4Pool + ", cooldown: 25h}", want: "cooldown must be a duration between 0s and 24h"},
		"cooldown negative":           {spec: ipv4Pool + ", cooldown: -1s}", want: "cooldown must be a duration between 0s and 24h"},
		"cooldown in words":           {spec: ipv4Pool + ", cooldown: 10 minutes}", want: "cooldown must be a duration between 0s and 24h"},
		"cooldown huge":               {spec: ipv4Pool + ", cooldown: 99999h99999h99999h}", want: "cooldown must be a duration between 0s and 24h"},
		"cooldown too long to be one": {spec: ipv4Pool + ", cooldown: 99999h99999h99999h99999h99999h}", want: "spec.cooldown: Too long"},
		"cooldown with a fraction":    {spec: ipv4Pool + ", cooldown: 1.5m}", want: "cooldown must be a duration between 0s and 24h in whole h, m, s or ms"},
		"cooldown in five parts":      {spec: ipv4Pool + ", cooldown: 1h1m1s1ms1ms}", want: "cooldown must be a duration between 0s and 24h"},
		"cooldown of six digits":      {spec: ipv4Pool + ", cooldown: 100000ms}", want: "cooldown must be a duration between 0s and 24h"},
		"cooldown a number":           {spec: ipv4Pool + ", cooldown: 60}", want: "spec.cooldown in body must be of type string"},
		"idleFor 168h":                {spec: ipv4Pool + ", reclaim: {idleFor: 168h}}"},
		"idleFor 168h1s":              {spec: ipv4Pool + ", reclaim: {idleFor: 168h1s}}", want: "idleFor must be a duration between 0s and 168h"},
		"idleFor without unit":        {spec: ipv4Pool + ", reclaim: {idleFor: '10'}}", want: "idleFor must be a duration between 0s and 168h"},

		"selector of labels":         {spec: ipv4Pool + ", nodeSelector: {matchLabels: {rack: r9}}}"},
		"selector, its labels lost":  {spec: ipv4Pool + ", nodeSelector: {rack: r9}}", want: "spec.nodeSelector: Invalid value: a nodeSelector without matchLabels and matchExpressions picks all nodes"},
		"selector of no label":       {spec: ipv4Pool + ", nodeSelector: {matchLabels: {}, matchExpressions: []}}", want: "write labels below matchLabels, or leave nodeSelector out to serve all nodes"},
		"pods, their labels lost":    {spec: "{ipv4: {blockSize: 32, cidrs: [{cidr: 10.0.0.0/24}]}, podAddresses: {podSelector: {app: web}}}", want: "a podSelector without matchLabels and matchExpressions picks all pods"},
		"spaces, their labels lost":  {spec: "{ipv4: {blockSize: 32, cidrs: [{cidr: 10.0.0.0/24}]}, podAddresses: {namespaceSelector: {team: blue}}}", want: "a namespaceSelector without matchLabels and matchExpressions picks all namespaces"},
		"maintenance, its part lost": {spec: ipv4Pool + ", maintenance: {perHour: 3}}", want: "maintenance without windows, blocksPerHour, ratePolicy and policy holds no block back"},
		"unknown operator":           {spec: ipv4Pool + ", nodeSelector: {matchExpressions: [{key: zone, operator: Is, values: [a]}]}}", want: `Unsupported value: "Is": supported values: "In", "NotIn", "Exists", "DoesNotExist"`},
		"In without values":          {spec: ipv4Pool + ", nodeSelector: {matchExpressions: [{key: zone, operator: In}]}}", want: "operators In and NotIn need values"},
		"NotIn without values":       {spec: ipv4Pool + ", nodeSelector: {matchExpressions: [{key: zone, operator: NotIn, values: []}]}}", want: "operators In and NotIn need values"},
		"Exists with values":         {spec: ipv4Pool + ", nodeSelector: {matchExpressions: [{key: zone, operator: Exists, values: [a]}]}}", want: "operators Exists and DoesNotExist take no values"},
		"DoesNotExist with values": {spec: ipv4Pool + ", nodeSelector: {matchExpressions: [{key: zone, operator: DoesNotExist, values: [a]}]}}",
			want: "operators Exists and DoesNotExist take no values"},
		"key of matchLabels malformed":        {spec: ipv4Pool + ", nodeSelector: {matchLabels: {'a b': c}}}", want: labelKey},
		"key of matchLabels empty":            {spec: ipv4Pool + ", nodeSelector: {matchLabels: {'': c}}}", want: labelKey},
		"value of matchLabels malformed":      {spec: ipv4Pool + ", nodeSelector: {matchLabels: {zone: 'north east'}}}", want: labelValue},
		"value of matchLabels too long":       {spec: ipv4Pool + ", nodeSelector: {matchLabels: {zone: " + strings.Repeat("a", 64) + "}}}", want: "Too long"},
		"key of matchExpressions malformed":   {spec: ipv4Pool + ", nodeSelector: {matchExpressions: [{key: a/b/c, operator: Exists}]}}", want: labelKey},
		"value of matchExpressions malformed": {spec: ipv4Pool + ", nodeSelector: {matchExpressions: [{key: zone, operator: In, values: [ok, -a]}]}}", want: labelValue},
		"longest key":                         {spec: fmt.Sprintf("%s, nodeSelector: {matchLabels: {%s/%s: v}}}", ipv4Pool, strings.Repeat("a.", 126)+"a", strings.Repeat("b", 63))},

		"reserved in IPv4":            {spec: ipv4Pool + ", reserved: [{cidr: 10.20.0.0/28}, {cidr: 10.20.0.0/16}]}"},
		"reserved with a description": {spec: ipv4Pool + ", reserved: [{cidr: 10.20.0.0/28, description: " + strings.Repeat("g", 256) + "}], reservedBlockPolicy: Skip}"},
		"reserved, long description":  {spec: ipv4Pool + ", reserved: [{cidr: 10.20.0.0/28, description: " + strings.Repeat("g", 257) + "}]}", want: "spec.reserved[0].description: Too long"},
		"reserved without a CIDR":     {spec: ipv4Pool + ", reserved: [{description: gateways}]}", want: "spec.reserved[0].cidr: Required value"},
		"reserved as in older pools":  {spec: ipv4Pool + ", reserved: [10.20.0.0/28]}", want: "spec.reserved[0]"},
		"reserved block policy":       {spec: ipv4Pool + ", reservedBlockPolicy: PublishRemainder}"},
		"reserved block policy, none": {spec: ipv4Pool + ", reservedBlockPolicy: Publish}", want: `spec.reservedBlockPolicy: Unsupported value: "Publish"`},
		"reserved in IPv6":            {spec: ipv6Pool + ", reserved: [{cidr: 'fd00:10::/64'}]}"},
		"reserved twice":              {spec: ipv4Pool + ", reserved: [{cidr: 10.20.0.0/28}, {cidr: 10.20.0.0/28}]}", want: "Duplicate value"},
		"reserved outside":            {spec: ipv4Pool + ", reserved: [{cidr: 10.20.0.0/28}, {cidr: 10.21.0.0/28}]}", want: "spec.reserved: Invalid value: 10.21.0.0/28 does not lie inside one CIDR of the pool: remove it from reserved"},
		"reserved wider than CIDR":    {spec: ipv4Pool + ", reserved: [{cidr: 10.20.0.0/15}]}", want: "10.20.0.0/15 does not lie inside one CIDR of the pool"},
		"reserved in two CIDRs":       {spec: "{ipv4: {cidrs: [{cidr: 10.20.0.0/17}, {cidr: 10.20.128.0/17}], blockSize: 27}, reserved: [{cidr: 10.20.0.0/16}]}", want: "10.20.0.0/16 does not lie inside one CIDR of the pool"},
		"reserved of other family":    {spec: ipv4Pool + ", reserved: [{cidr: 'fd00:10::/64'}]}", want: "fd00:10::/64 does not lie inside one CIDR of the pool"},
		"reserved not a CIDR":         {spec: ipv4Pool + ", reserved: [{cidr: 10.20.0.1}]}", want: `spec.reserved[0].cidr: Invalid value: "10.20.0.1": reserved must be a CIDR such as 10.20.0.0/28`},
		"reserved with host bits":     {spec: ipv4Pool + ", reserved: [{cidr: 10.20.0.1/28}]}", want: "reserved must be canonical, with no host bits set: write 10.20.0.0/28"},
		"reserved and pool malformed": {spec: "{ipv4: {cidrs: [{cidr: x}], blockSize: 27}, reserved: [{cidr: all}]}", want: "reserved must be a CIDR such as"},
		"reserved IPv4-mapped":        {spec: ipv4Pool + ", reserved: [{cidr: '::ffff:10.20.0.0/124'}]}", want: "IPv4-mapped IPv6 is refused"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.name == "" {
				tc.name = "pool"
			}
			o := object(t, "PodIPPool", tc.name, tc.spec)
			_, err := resource(t, "podippools").Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			expect(t, err, tc.want)
		})
	}
}

func TestPoolCIDRs(t *testing.T) {
	const notUsable = "cidr must be addresses that pods can have"
	tests := map[string]struct {
		family int
		cidrs  []string
		want   string
	}{
		"several":            {4, []string{"10.20.0.0/16", "10.21.0.0/16", "192.168.0.0/24", "100.64.0.0/10"}, ""},
		"several IPv6":       {6, []string{"fd00::/64", "fd00:0:0:1::/64", "2001:db8::/32"}, ""},
		"widest":             {4, []string{"10.0.0.0/8"}, ""},
		"too wide":           {4, []string{"8.0.0.0/7"}, notUsable},
		"too wide, IPv6":     {6, []string{"fc00::/7"}, notUsable},
		"unspecified":        {4, []string{"0.0.0.0/8"}, notUsable},
		"loopback":           {4, []string{"127.0.0.0/8"}, notUsable},
		"link-local":         {4, []string{"169.254.0.0/16"}, notUsable},
		"multicast":          {4, []string{"224.0.0.0/8"}, notUsable},
		"unspecified, IPv6":  {6, []string{"::/64"}, notUsable},
		"link-local, IPv6":   {6, []string{"fe80::/64"}, notUsable},
		"multicast, IPv6":    {6, []string{"ff00::/16"}, notUsable},
		"not a CIDR":         {4, []string{"10.20.0.0"}, "cidr must be a CIDR such as 10.20.0.0/16"},
		"empty":              {4, []string{""}, "cidr must be a CIDR such as 10.20.0.0/16"},
		"words":              {4, []string{"all"}, "cidr must be a CIDR such as 10.20.0.0/16"},
		"prefix too long":    {4, []string{"10.20.0.0/33"}, "cidr must be a CIDR such as 10.20.0.0/16"},
		"octet too big":      {4, []string{"10.20.300.0/24"}, "cidr must be a CIDR such as 10.20.0.0/16"},
		"leading zero":       {4, []string{"10.020.0.0/16"}, "cidr must be a CIDR such as 10.20.0.0/16"},
		"space":              {4, []string{"10.20.0.0/16 "}, "cidr must be a CIDR such as 10.20.0.0/16"},
		"host bits":          {4, []string{"10.21.0.0/16", "10.20.0.1/16"}, `spec.ipv4.cidrs[1].cidr: Invalid value: "10.20.0.1/16": cidr must be canonical, with no host bits set: write 10.20.0.0/16`},
		"host bits, IPv6":    {6, []string{"fd00:10::1/64"}, "cidr must be canonical, with no host bits set: write fd00:10::/64"},
		"upper case":         {6, []string{"FD00:10::/64"}, "cidr must be canonical, with no host bits set: write fd00:10::/64"},
		"not the shortest":   {6, []string{"fd00:10:0::/64"}, "cidr must be canonical, with no host bits set: write fd00:10::/64"},
		"IPv4-mapped":        {6, []string{"::ffff:10.20.0.0/112"}, "IPv4-mapped IPv6 is refused"},
		"IPv4-mapped in hex": {6, []string{"::ffff:a14:0/112"}, "IPv4-mapped IPv6 is refused"},
		"zone":               {6, []string{"fd00::%eth0/64"}, "cidr must be a CIDR such as"},
		"IPv6 in ipv4":       {4, []string{"10.20.0.0/16", "fd00:10::/64"}, "spec.ipv4.cidrs[1].cidr: Invalid value: ipv4.cidrs takes IPv4 CIDRs only: move this one to ipv6.cidrs"},
		"IPv4 in ipv6":       {6, []string{"10.20.0.0/16"}, "spec.ipv6.cidrs[0].cidr: Invalid value: ipv6.cidrs takes IPv6 CIDRs only: move this one to ipv4.cidrs"},
		"twice":              {4, []string{"10.20.0.0/16", "10.20.0.0/16"}, "Duplicate value"},
		"inside another":     {4, []string{"10.21.0.0/16", "10.20.8.0/24", "10.20.0.0/16"}, "spec.ipv4.cidrs: Invalid value: 10.20.0.0/16 contains another CIDR of this pool: remove the smaller one"},
		"around another":     {4, []string{"10.20.0.0/16", "10.20.8.0/24"}, "10.20.0.0/16 contains another CIDR of this pool: remove the smaller one"},
		"same first address": {4, []string{"10.20.0.0/17", "10.20.0.0/16"}, "10.20.0.0/16 contains another CIDR of this pool: remove the smaller one"},
		"overlap in IPv6":    {6, []string{"fd00::/48", "fd00::/64"}, "spec.ipv6.cidrs: Invalid value: fd00::/48 contains another CIDR of this pool: remove the smaller one"},
		"overlap, host bits": {4, []string{"10.20.0.0/16", "10.20.8.1/24"}, "cidr must be canonical, with no host bits set: write 10.20.8.0/24"},
		"as many as allowed": {4, slash24s(128), ""},
		"one too many":       {4, slash24s(129), "spec.ipv4.cidrs: Too many: 129: must have at most 128 items"},
		"all in another":     {4, append(slash24s(127), "10.20.0.0/16"), "10.20.0.0/16 contains another CIDR of this pool"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := object(t, "PodIPPool", "pool", fmt.Sprintf("{ipv%d: %s}", tc.family, ranges(tc.cidrs, map[int]int{4: 27, 6: 122}[tc.family])))
			_, err := resource(t, "podippools").Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			expect(t, err, tc.want)
		})
	}
}

// The largest possible pool must stay within the API server's budget for the rules of one object.
func TestPoolOfLargestSize(t *testing.T) {
	ipv4, ipv6, reserved := slash24s(128), make([]string, 128), make([]string, 64)
	for i := range ipv6 {
		ipv6[i] = fmt.Sprintf("2001:db8:%x:1111:2222:3333:%x:0/112", 0x1000+i, 0xa000+i)
	}
	for i := range reserved {
		reserved[i] = strings.Replace(ipv6[64+i], ":0/112", ":1230/124", 1)
	}
	for name, tc := range map[string]struct{ last, want string }{
		"accepted": {reserved[63], ""},
		"refused":  {"2001:db9:107f:1111:2222:3333:a07f:1230/124", "2001:db9:107f:1111:2222:3333:a07f:1230/124 does not lie inside one CIDR of the pool"},
	} {
		t.Run(name, func(t *testing.T) {
			reserved[63] = tc.last
			o := object(t, "PodIPPool", "pool", fmt.Sprintf("{ipv4: %s, ipv6: %s, reserved: [{cidr: '%s'}]}",
				ranges(ipv4, 27), ranges(ipv6, 122), strings.Join(reserved, "'}, {cidr: '")))
			_, err := resource(t, "podippools").Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			expect(t, err, tc.want)
		})
	}
	t.Run("all CIDRs replaced while nodes hold them", func(t *testing.T) {
		client := resource(t, "podippools")
		pool := create(t, client, object(t, "PodIPPool", "pool", fmt.Sprintf("{ipv4: %s, ipv6: %s}", ranges(ipv4, 27), ranges(ipv6, 122))))
		pool.Object["status"] = map[string]any{"ipv4": heldStatus(ipv4), "ipv6": heldStatus(ipv6)}
		pool, err := client.UpdateStatus(t.Context(), pool, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		first := ipv4[0]
		for i := range ipv4 {
			ipv4[i] = strings.Replace(ipv4[i], "10.20", "10.30", 1)
		}
		o := object(t, "PodIPPool", "pool", fmt.Sprintf("{ipv4: %s, ipv6: %s}", ranges(ipv4, 27), ranges(ipv6[1:], 122)))
		o.SetResourceVersion(pool.GetResourceVersion())
		_, err = client.Update(t.Context(), o, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		expect(t, err, first+" cannot be taken out of the pool")
		expect(t, err, ipv6[0]+" cannot be taken out of the pool")
	})
}

// heldStatus is the status of a family whose CIDRs all have blocks that nodes hold.
func heldStatus(cidrs []string) map[string]any {
	counts := map[string]any{"assignable": int64(0), "held": int64(0), "inService": int64(0), "draining": int64(0), "coolingDown": int64(0), "free": int64(0)}
	held := make([]any, len(cidrs))
	for i, c := range cidrs {
		held[i] = map[string]any{"cidr": c, "blocks": int64(9)}
	}
	return map[string]any{"blocks": counts, "addresses": counts, "cidrs": held}
}

func TestPoolUpdate(t *testing.T) {
	tests := map[string]struct{ old, updated, want string }{
		"CIDR added":                       {ipv4Pool + "}", "{ipv4: {cidrs: [{cidr: 10.20.0.0/16}, {cidr: 10.21.0.0/16}], blockSize: 27}}", ""},
		"CIDR replaced":                    {ipv4Pool + "}", "{ipv4: {cidrs: [{cidr: 10.21.0.0/16}], blockSize: 27}}", ""},
		"CIDR drained":                     {ipv4Pool + "}", "{ipv4: {cidrs: [{cidr: 10.20.0.0/16, allocationPolicy: Drain}], blockSize: 27}}", ""},
		"CIDR cordoned":                    {ipv4Pool + "}", "{ipv4: {cidrs: [{cidr: 10.20.0.0/16, allocationPolicy: Cordon}], blockSize: 27}}", ""},
		"unknown policy":                   {ipv4Pool + "}", "{ipv4: {cidrs: [{cidr: 10.20.0.0/16, allocationPolicy: Never}], blockSize: 27}}", `allocationPolicy: Unsupported value: "Never": supported values: "Allocate", "Cordon", "Drain"`},
		"IPv6 added":                       {ipv4Pool + "}", ipv4Pool + ", " + ipv6Pool[1:] + "}", ""},
		"IPv4 removed":                     {ipv4Pool + ", " + ipv6Pool[1:] + "}", ipv6Pool + "}", "spec.ipv4 can be removed from a pool once status.ipv4.blocks reports that no node holds a block of it"},
		"IPv6 removed":                     {ipv4Pool + ", " + ipv6Pool[1:] + "}", ipv4Pool + "}", "spec.ipv6 can be removed from a pool once status.ipv6.blocks reports that no node holds a block of it"},
		"Cilium's pool":                    {ipv4Pool + ", ciliumPoolName: blue}", ipv4Pool + ", ciliumPoolName: green}", "ciliumPoolName is immutable, as agents have the blocks under that name"},
		"Cilium's pool set":                {ipv4Pool + "}", ipv4Pool + ", ciliumPoolName: blue}", "ciliumPoolName is immutable"},
		"Cilium's pool off":                {ipv4Pool + ", ciliumPoolName: blue}", ipv4Pool + "}", "ciliumPoolName is immutable"},
		"Cilium's pool named default":      {ipv4Pool + "}", ipv4Pool + ", ciliumPoolName: default}", ""},
		"Cilium's pool default left out":   {ipv4Pool + ", ciliumPoolName: default}", ipv4Pool + "}", ""},
		"Cilium's pool default to another": {ipv4Pool + ", ciliumPoolName: default}", ipv4Pool + ", ciliumPoolName: blue}", "ciliumPoolName is immutable"},
		"Cilium's pool on":                 {ipv4Pool + ", ciliumPoolName: blue}", ipv4Pool + ", ciliumPoolName: blue, priority: 7}", ""},
		"IPv4 block size":                  {ipv4Pool + "}", "{ipv4: {cidrs: [{cidr: 10.20.0.0/16}], blockSize: 26}}", ""},
		"IPv4 to addresses":                {ipv4Pool + "}", "{ipv4: {cidrs: [{cidr: 10.20.0.0/16}], blockSize: 32}}", "write 27 for blocks of 32 addresses"},
		"addresses on":                     {"{ciliumPoolName: default, ipv4: {cidrs: [{cidr: 10.20.0.0/16}], blockSize: 32}}", "{ipv4: {cidrs: [{cidr: 10.20.0.0/16}], blockSize: 32}}", ""},
		"IPv6 block size":                  {ipv6Pool + "}", "{ipv6: {cidrs: [{cidr: 'fd00:10::/48'}], blockSize: 120}}", ""},
		"reserved orphaned":                {ipv4Pool + ", reserved: [{cidr: 10.20.0.0/28}]}", "{ipv4: {cidrs: [{cidr: 10.21.0.0/16}], blockSize: 27}, reserved: [{cidr: 10.20.0.0/28}]}", "10.20.0.0/28 does not lie inside one CIDR of the pool"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			client := resource(t, "podippools")
			old := create(t, client, object(t, "PodIPPool", "updated", tc.old))
			updated := object(t, "PodIPPool", "updated", tc.updated)
			updated.SetResourceVersion(old.GetResourceVersion())
			_, err := client.Update(t.Context(), updated, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			expect(t, err, tc.want)
		})
	}
}

// A CIDR that nodes hold blocks of leaves a pool only after it drained, or as a part of what takes
// its place: a typo must not drain a pool.
func TestHeldCIDRStaysInThePool(t *testing.T) {
	const held = "cannot be taken out of the pool, as nodes hold blocks of it: write it back, or set its allocationPolicy to Drain first"
	tests := map[string]struct {
		policy  string // of the held CIDR, before
		updated []string
		want    string
	}{
		"replaced by a typo":                 {"", []string{"10.2.0.0/16", "10.30.0.0/16"}, "10.20.0.0/16 " + held},
		"removed":                            {"", []string{"10.30.0.0/16"}, "10.20.0.0/16 " + held},
		"removed while cordoned":             {"Cordon", []string{"10.30.0.0/16"}, "10.20.0.0/16 " + held},
		"removed while it drains":            {"Drain", []string{"10.30.0.0/16"}, ""},
		"another one removed":                {"", []string{"10.20.0.0/16"}, ""},
		"widened":                            {"", []string{"10.20.0.0/15"}, ""},
		"cut in halves":                      {"", []string{"10.20.0.0/17", "10.20.128.0/17"}, ""},
		"cut in halves, part of one missing": {"", []string{"10.20.0.0/17", "10.20.192.0/18"}, "10.20.0.0/16 " + held},
		"narrowed":                           {"", []string{"10.20.0.0/17"}, "10.20.0.0/16 " + held},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			client := resource(t, "podippools")
			spec := fmt.Sprintf("{ipv4: {blockSize: 27, cidrs: [{cidr: 10.20.0.0/16, allocationPolicy: %s}, {cidr: 10.30.0.0/16}]}}", cmp.Or(tc.policy, "Allocate"))
			pool := create(t, client, object(t, "PodIPPool", "held", spec))
			pool.Object["status"] = map[string]any{"ipv4": heldStatus([]string{"10.20.0.0/16"})}
			pool, err := client.UpdateStatus(t.Context(), pool, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			updated := object(t, "PodIPPool", "held", fmt.Sprintf("{ipv4: %s}", ranges(tc.updated, 27)))
			updated.SetResourceVersion(pool.GetResourceVersion())
			_, err = client.Update(t.Context(), updated, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			expect(t, err, tc.want)
		})
	}
}

// The block size of a family stays while nodes hold blocks of it, and no longer.
func TestBlockSizeStaysWhileHeld(t *testing.T) {
	client := resource(t, "podippools")
	pool := create(t, client, object(t, "PodIPPool", "held", ipv4Pool+", "+ipv6Pool[1:]+"}"))
	for _, tc := range []struct {
		held int64
		want string
	}{
		{3, "spec.ipv4.blockSize: Invalid value: blockSize stays 27 while nodes hold blocks of the pool, 3 now: write it back, and set allocationPolicy: Drain on the CIDRs and wait until status.ipv4.blocks.held is 0"},
		{0, ""},
	} {
		status := heldStatus(nil)
		status["blocks"].(map[string]any)["held"] = tc.held
		pool.Object["status"] = map[string]any{"ipv4": status}
		stored, err := client.UpdateStatus(t.Context(), pool, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pool = stored
		updated := object(t, "PodIPPool", "held", "{ipv4: {cidrs: [{cidr: 10.20.0.0/16}], blockSize: 28}, ipv6: {cidrs: [{cidr: 'fd00:10::/48'}], blockSize: 123}}")
		updated.SetResourceVersion(pool.GetResourceVersion())
		_, err = client.Update(t.Context(), updated, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		expect(t, err, tc.want)
	}
}

// A pool that was stored before its selector was refused stays as it is, and can be changed elsewhere.
func TestStoredSelectorOfAllNodes(t *testing.T) {
	cluster := cptest.New(t, controlplane.Options{})
	b := harness.NewBed(t, cluster.Config())
	definitions, err := crds.All()
	harness.Must(t, err)
	older, err := crds.All()
	harness.Must(t, err)
	for _, definition := range older {
		if definition.Spec.Names.Kind != "PodIPPool" {
			continue
		}
		spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		selector := spec.Properties["nodeSelector"]
		selector.XValidations = nil
		spec.Properties["nodeSelector"] = selector
	}
	harness.Must(t, cluster.InstallCRDs(t.Context(), older...))
	pool := object(t, "PodIPPool", "stored", ipv4Pool+", nodeSelector: {}}")
	b.Create(pool)
	harness.Must(t, cluster.InstallCRDs(t.Context(), definitions...))
	b.Eventually("the rule is in force", func() error {
		another := object(t, "PodIPPool", "another", ipv4Pool+", nodeSelector: {}}")
		if err := client.NewDryRunClient(b.Client).Create(t.Context(), another); !apierrors.IsInvalid(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	for _, change := range []struct{ patch, want string }{
		{`{"metadata":{"finalizers":["cilium-pool.io/in-use"]}}`, ""},
		{`{"spec":{"priority":7}}`, ""},
		{`{"spec":{"nodeSelector":{"matchLabels":{"rack":"r9"}}}}`, ""},
		{`{"spec":{"nodeSelector":{"matchLabels":null}}}`, "picks all nodes"},
		{`{"spec":{"nodeSelector":null}}`, ""},
	} {
		expect(t, b.Client.Patch(t.Context(), pool.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change.patch))), change.want)
	}
}

func ranges(cidrs []string, blockSize int) string {
	return fmt.Sprintf("{blockSize: %d, cidrs: [{cidr: '%s'}]}", blockSize, strings.Join(cidrs, "'}, {cidr: '"))
}

func slash24s(n int) []string {
	cidrs := make([]string, n)
	for i := range cidrs {
		cidrs[i] = fmt.Sprintf("10.20.%d.0/24", i)
	}
	return cidrs
}
