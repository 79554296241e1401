//go:build linux

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

//go:embed manifests/calico.yaml
var calicoManifest string

// calicoCIDR is the CIDR of the IPPool that selects the nodes, calicoReserved its
// IPReservation.
var (
	calicoCIDR     = netip.MustParsePrefix("100.72.0.0/20")
	calicoReserved = netip.MustParsePrefix("100.72.0.0/28")
)

// calicoScenario runs a cluster with Calico's objects, validated by Calico's own CRDs. The
// pools imported from them suffice to install Cilium and the operator.
func calicoScenario(ctx context.Context, t *trial) error {
	if _, err := os.Stat(t.options.calico); err != nil {
		return errors.New("no CRDs of Calico: give their folder with -calico, as make does")
	}
	if err := t.start(ctx); err != nil {
		return err
	}
	for _, line := range []string{
		"kubectl apply --server-side -f " + t.options.calico,
		"kubectl wait --for=condition=Established --timeout=1m crd/ippools.crd.projectcalico.org crd/ipreservations.crd.projectcalico.org crd/ipamconfigs.crd.projectcalico.org",
	} {
		if _, err := t.shell(ctx, line); err != nil {
			return err
		}
	}
	if err := t.cluster.Apply(ctx, calicoManifest); err != nil {
		return err
	}
	pools := filepath.Join(t.options.dir, "from-calico.yaml")
	notes, err := t.shell(ctx, "kubectl cilium-pool import --from calico >"+pools)
	t.check("import --from calico succeeds", err == nil, err == nil)
	if err != nil {
		return err
	}
	t.say("%s", notes)
	if err := t.installSetup(ctx, setup{name: "pools of Calico", pools: []string{pools}, labels: "zone=east"}); err != nil {
		return err
	}
	if err := t.blocksOfCalico(ctx); err != nil {
		return err
	}
	served, asked, err := t.servedFrom(ctx)
	t.check("the Service answers each node and a pod on each", fmt.Sprintf("%d of %d", served, asked), served == asked)
	return err
}

// blocksOfCalico checks where the nodes' blocks are, and that plan recognizes the pools as
// those of the cluster.
func (t *trial) blocksOfCalico(ctx context.Context) error {
	blocks, err := query[blockList](ctx, t.bed, "podipblocks")
	if err != nil {
		return err
	}
	var wrong []string
	nodes := map[string]bool{}
	for _, b := range blocks.Items {
		nodes[b.Spec.NodeName] = true
		cidr, err := netip.ParsePrefix(b.Spec.CIDR)
		if err != nil || !calicoCIDR.Contains(cidr.Addr()) || calicoReserved.Overlaps(cidr) || cidr.Bits() != 28 {
			wrong = append(wrong, b.Spec.CIDR)
		}
	}
	t.check("nodes that have /28 blocks of the IPPool that selects them", len(nodes), len(nodes) == t.options.nodes)
	t.check("blocks elsewhere, or in the reservation", fmt.Sprint(len(wrong), " ", strings.Join(wrong, " ")), len(wrong) == 0)
	return nil
}
