package importer

import (
	"fmt"
	"strings"
	"testing"
)

// ipPoolOf returns an IPPool with Cilium's encapsulation and NAT, so that only parts of spec can be
// lost.
func ipPoolOf(name string, spec ...string) string {
	return "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: " + name + "}\nspec:\n  vxlanMode: Always\n  natOutgoing: true\n  " + strings.Join(spec, "\n  ")
}

func reservationOf(cidrs ...string) string {
	return "apiVersion: projectcalico.org/v3\nkind: IPReservation\nmetadata: {name: r}\nspec: {reservedCIDRs: [\"" + strings.Join(cidrs, `", "`) + `"]}`
}

func TestCalico(t *testing.T) {
	config := func(spec string) string {
		return "apiVersion: crd.projectcalico.org/v1\nkind: IPAMConfig\nmetadata: {name: default}\nspec: {" + spec + "}"
	}
	var scattered []string
	for i := range 65 {
		scattered = append(scattered, fmt.Sprintf("10.1.%d.1", i))
	}
	for name, test := range map[string]struct {
		docs  []string
		want  []string
		texts []string
	}{
		"the defaults": {[]string{ipPoolOf("a", "cidr: 10.1.0.0/16"), ipPoolOf("b", "cidr: fd00:1::/64")},
			[]string{"a 10.1.0.0/16 by /26", "b fd00:1::/64 by /122"}, nil},
		"block sizes": {[]string{ipPoolOf("a", "cidr: 10.1.0.0/16", "blockSize: 20"), ipPoolOf("b", "cidr: 10.2.0.0/16", "blockSize: 32"), ipPoolOf("c", "cidr: fd00:1::/64", "blockSize: 128")},
			[]string{"a 10.1.0.0/16 by /20", "b 10.2.0.0/16 by /30", "c fd00:1::/64 by /126",
				"lost: IPPool b: spec.blockSize: a /32", "lost: IPPool c: spec.blockSize: a /128"}, []string{"from 20 to 30"}},
		"selectors": {[]string{
			ipPoolOf("a", "cidr: 10.1.0.0/16", `nodeSelector: rack == "0" && !has(gpu)`),
			ipPoolOf("b", "cidr: 10.2.0.0/16", `nodeSelector: rack starts with "1"`),
			ipPoolOf("c", "cidr: 10.3.0.0/16", `nodeSelector: rack = "1"`)},
			[]string{"a 10.1.0.0/16 by /26 for !gpu,rack=0", "b 10.2.0.0/16 by /26 for cilium-pool.io/import=b", "c 10.3.0.0/16 by /26 for cilium-pool.io/import=c",
				`lost: IPPool b: spec.nodeSelector: rack starts with "1"`, `lost: IPPool c: spec.nodeSelector: rack = "1"`},
			[]string{"looks into values", "no operator follows the label", "label those that are to have it cilium-pool.io/import=b"}},
		"chosen by pods": {[]string{
			ipPoolOf("a", "cidr: 10.1.0.0/16", "nodeSelector: zone == 'a'", "namespaceSelector: team == 'x'"),
			ipPoolOf("b", "cidr: 10.2.0.0/16", "assignmentMode: Manual"), ipPoolOf("c", "cidr: 10.3.0.0/16", "namespaceSelector: all()")},
			[]string{"a 10.1.0.0/16 by /26 for cilium-pool.io/import=a,zone=a", "b 10.2.0.0/16 by /26 for cilium-pool.io/import=b", "c 10.3.0.0/16 by /26",
				"lost: IPPool a: spec.namespaceSelector: team == 'x'", "lost: IPPool b: spec.assignmentMode: Manual"}, nil},
		"chosen by pods, and a selector that cannot be read": {[]string{ipPoolOf("a", "cidr: 10.1.0.0/16", "nodeSelector: zone", "namespaceSelector: team == 'x'")},
			[]string{"a 10.1.0.0/16 by /26 for cilium-pool.io/import=a", "lost: IPPool a: spec.nodeSelector: zone", "lost: IPPool a: spec.namespaceSelector: team == 'x'"}, nil},
		"uses": {[]string{ipPoolOf("a", "cidr: 10.1.0.0/16", "allowedUses: [Tunnel]"), ipPoolOf("b", "cidr: 10.2.0.0/16", "allowedUses: [LoadBalancer]"), ipPoolOf("c", "cidr: 10.3.0.0/16", "allowedUses: [Workload]")},
			[]string{"c 10.3.0.0/16 by /26", "lost: IPPool b: spec.allowedUses"}, []string{"CiliumLoadBalancerIPPool", "note: IPPool a"}},
		"disabled": {[]string{ipPoolOf("a", "cidr: 10.1.0.0/16", "disabled: true")},
			[]string{"a 10.1.0.0/16 (Cordon) by /26"}, nil},
		"routing": {[]string{ipPoolOf("a", "cidr: 10.1.0.0/16", "disableBGPExport: true"),
			"apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {name: b}\nspec: {cidr: 10.2.0.0/16, ipipMode: Never, natOutgoing: false}"},
			[]string{"a 10.1.0.0/16 by /26", "b 10.2.0.0/16 by /26", "lost: IPPool a: spec.disableBGPExport", "lost: IPPool b: spec", "lost: IPPool b: spec.natOutgoing"}, nil},
		"both groups": {[]string{ipPoolOf("a", "cidr: 10.1.0.0/16"), strings.Replace(ipPoolOf("a", "cidr: 10.1.0.0/16"), "projectcalico.org/v3", "crd.projectcalico.org/v1", 1)},
			[]string{"a 10.1.0.0/16 by /26"}, nil},
		"both groups, different": {[]string{ipPoolOf("a", "cidr: 10.1.0.0/16"), strings.Replace(ipPoolOf("a", "cidr: 10.2.0.0/16"), "projectcalico.org/v3", "crd.projectcalico.org/v1", 1)},
			[]string{"a 10.1.0.0/16 by /26", "lost: IPPool a: spec"}, []string{"another IPPool of this name says otherwise"}},
		"other groups": {[]string{strings.Replace(ipPoolOf("a", "cidr: 10.1.0.0/16"), "projectcalico.org/v3", "example.com/v3", 1)}, nil, nil},
		"reservations": {[]string{ipPoolOf("a", "cidr: 10.1.0.0/16"), ipPoolOf("b", "cidr: 10.2.0.0/24"), reservationOf("10.1.0.3", "10.1.0.2/32", "10.2.0.0/15", "fd00::1", "no")},
			[]string{"a 10.1.0.0/16 by /26 reserved 10.1.0.2/31", "b 10.2.0.0/24 by /26 reserved 10.2.0.0/24", "lost: IPReservation r: spec.reservedCIDRs: no"},
			[]string{"note: IPReservation r (a.yaml): spec.reservedCIDRs: fd00::1/128: lies in none"}},
		"too many reservations": {[]string{ipPoolOf("a", "cidr: 10.1.0.0/16"), reservationOf(scattered...)},
			[]string{"lost: PodIPPool a: spec"}, []string{"65 separate ranges"}},
		"configuration": {[]string{ipPoolOf("a", "cidr: 10.1.0.0/16"), config("strictAffinity: false, autoAllocateBlocks: false, maxBlocksPerHost: 4000, ipCooldownSeconds: 5, kubeVirtVMAddressPersistence: Enabled, new: 1")},
			[]string{"a 10.1.0.0/16 by /26", "lost: IPAMConfig default: spec.new", "lost: IPAMConfig default: spec.autoAllocateBlocks: false",
				"lost: IPAMConfig default: spec.ipCooldownSeconds: 5", "lost: IPAMConfig default: spec.kubeVirtVMAddressPersistence: Enabled"},
			[]string{"borrow no single addresses", "takes 1024 at most"}},
		"strict": {[]string{ipPoolOf("a", "cidr: 10.1.0.0/16"), config("strictAffinity: true, autoAllocateBlocks: true")}, []string{"a 10.1.0.0/16 by /26"}, nil},
		"odd": {[]string{ipPoolOf("A_b", "cidr: 10.1.0.1/16"), ipPoolOf("a-b", "cidr: 10.2.0.0/16"), ipPoolOf("c", "cidr: nonsense"), ipPoolOf("d", "cidr: 10.4.0.0/28"),
			ipPoolOf("e", "cidr: 169.254.0.0/16"), ipPoolOf("f", "cidr: 10.6.0.0/16", "blockSize: big"), ipPoolOf("g", "cidr: 10.7.0.0/16", "ipip: {mode: always}")},
			[]string{"a-b 10.1.0.0/16 by /26", "a-b-2 10.2.0.0/16 by /26", "g 10.7.0.0/16 by /26",
				"lost: IPPool f: spec", "lost: IPPool c: spec.cidr: nonsense", "lost: IPPool g: spec.ipip", "lost: PodIPPool d: spec", "lost: PodIPPool e: spec"},
			[]string{"A_b: a PodIPPool of that name cannot be, or is there already: it is called a-b", "called a-b-2", "taken for 10.1.0.0/16", "left out"}},
		"overlap": {[]string{ipPoolOf("b", "cidr: 10.1.0.0/16"), ipPoolOf("a", "cidr: 10.1.2.0/24"), ipPoolOf("c", "cidr: 10.1.3.0/24", "disabled: true")},
			[]string{"b 10.1.0.0/16 by /26", "a 10.1.2.0/24 by /26", "c 10.1.3.0/24 (Cordon) by /26", "lost: PodIPPool b: spec: 10.1.0.0/16"},
			[]string{"pools a and b claim the same addresses"}},
		"values of the operator's chart": {[]string{"apiVersion: helm.cattle.io/v1\nkind: HelmChartConfig\nmetadata: {name: rke2-calico}\nspec: {valuesContent: 'installation: {calicoNetwork: {ipPools: [{cidr: 10.1.0.0/16, blockSize: 24, natOutgoing: Disabled, encapsulation: None}]}}'}"},
			[]string{"default-ipv4-ippool 10.1.0.0/16 by /24", "lost: Installation default: spec.calicoNetwork.ipPools[0]", "lost: Installation default: spec.calicoNetwork.ipPools[0].natOutgoing"}, nil},
	} {
		t.Run(name, func(t *testing.T) { checkResult(t, imported(t, Calico, test.docs...), test.want, test.texts...) })
	}
}

func TestInstallation(t *testing.T) {
	r := imported(t, Calico, ipPoolOf("zone-3", "cidr: 10.3.0.0/16"), `
apiVersion: operator.tigera.io/v1
kind: Installation
metadata: {name: default}
spec:
  calicoNetwork:
    ipPools:
    - {cidr: 10.1.0.0/16, blockSize: 24, natOutgoing: Disabled}
    - {cidr: 10.2.0.0/16, encapsulation: None, disableNewAllocations: true}
    - {cidr: 10.3.0.0/16, encapsulation: None}
    - {cidr: "fd00:1::/64", encapsulation: VXLAN, name: six, more: 1}
    - {cidr: 7}
    - {cidr: "fd00:2::/64"}
`)
	checkResult(t, r, []string{
		"zone-3 10.3.0.0/16 by /26",
		"default-ipv4-ippool 10.1.0.0/16 by /24", "10-2-0-0-16 10.2.0.0/16 (Cordon) by /26", "six fd00:1::/64 by /122",
		"default-ipv6-ippool fd00:2::/64 by /122",
		"lost: Installation default: spec.calicoNetwork.ipPools[4]",
		"lost: Installation default: spec.calicoNetwork.ipPools[0].natOutgoing",
		"lost: Installation default: spec.calicoNetwork.ipPools[1]",
		"lost: Installation default: spec.calicoNetwork.ipPools[3].more",
		"lost: Installation default: spec.calicoNetwork.ipPools[5]",
	}, "note: IPPools: natOutgoing", "note: IPPools: vxlanMode, ipipMode, encapsulation")
}
