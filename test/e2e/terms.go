//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// state holds the objects of a node.
type state struct {
	cn     *ciliumv2.CiliumNode
	node   *corev1.Node
	blocks []v1alpha1.PodIPBlock
}

func (e *env) state(ctx context.Context, name string) (s state, err error) {
	blocks := &v1alpha1.PodIPBlockList{}
	if err := e.Client.List(ctx, blocks); err != nil {
		return s, err
	}
	s.node, s.blocks = &corev1.Node{}, blocks.Items
	if err := e.Client.Get(ctx, client.ObjectKey{Name: name}, s.node); client.IgnoreNotFound(err) != nil {
		return s, err
	}
	s.cn, err = e.CiliumNode(ctx, name)
	return s, client.IgnoreNotFound(err)
}

// holds returns an error unless all conditions hold: terms with a comparison, or one of the
// words gone, same, compact and spare.
func (e *env) holds(ctx context.Context, node string, conditions []string) error {
	s, err := e.state(ctx, node)
	if err != nil {
		return err
	}
	for _, c := range conditions {
		switch c {
		case "gone":
			if s.cn.UID != "" {
				return errors.New("the CiliumNode is there")
			}
		case "same":
			err = sameBlocks(e.remembered[node], s.cn)
		case "compact":
			err = compact(s)
		case "spare":
			err = e.spare(s)
		default:
			err = e.compare(s, node, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// compare checks LEFT=RIGHT, LEFT<RIGHT or LEFT>RIGHT.
func (e *env) compare(s state, node, condition string) error {
	i := strings.IndexAny(condition, "=<>")
	if i < 0 {
		return fmt.Errorf("condition %q: not a comparison", condition)
	}
	left, err := e.term(s, node, condition[:i])
	if err != nil {
		return err
	}
	right, err := e.term(s, node, condition[i+1:])
	if err != nil {
		return err
	}
	if condition[i] == '=' && left == right || condition[i] == '<' && left < right || condition[i] == '>' && left > right {
		return nil
	}
	return fmt.Errorf("%s: %d and %d; podCIDRs %v, pools %v, release-ips %v", condition, left, right, prefixesOf(s.cn), s.cn.Spec.IPAM.Pools.Allocated, s.cn.Status.IPAM.ReleaseIPs)
}

// term evaluates a number, or a word that may be limited to a CIDR, as in used:100.66.224.0/27.
func (e *env) term(s state, node, term string) (int, error) {
	if n, err := strconv.Atoi(term); err == nil {
		return n, nil
	}
	word, cidr, limited := strings.Cut(term, ":")
	was := e.remembered[node]
	within := func(netip.Addr) bool { return true }
	if limited {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return 0, fmt.Errorf("condition %q: %w", term, err)
		}
		within = prefix.Contains
	}
	if name, found := strings.CutPrefix(word, "@"); found {
		pods, err := e.group(name)
		return countFunc(pods, func(p *bed.Pod) bool { return slices.ContainsFunc(p.Addresses, within) }), err
	}
	if n, ok := s.blocksThat(word, node, within); ok {
		return n, nil
	}
	if word == "closed" {
		return s.closedBy(e.nodes[node].Container(), within), nil
	}
	switch word {
	case "was": // addresses in the pool when the node was remembered
		return len(was.Spec.IPAM.Pool), nil
	case "kept": // the agent's own addresses that it had then
		before := state{cn: was}.own()
		return countFunc(s.own(), func(a netip.Addr) bool { return within(a) && slices.Contains(before, a) }), nil
	}
	addresses, err := s.addresses(word)
	return countFunc(addresses, within), err
}

// blocksThat counts blocks.
func (s state) blocksThat(word, node string, within func(netip.Addr) bool) (int, bool) {
	of := func(all []netip.Prefix) (int, bool) {
		return countFunc(all, func(p netip.Prefix) bool { return within(p.Addr()) }), true
	}
	var held, cooling []netip.Prefix
	for i := range s.blocks {
		if b, ok := whole.BlockOf(&s.blocks[i]); ok && b.Cooling {
			cooling = append(cooling, b.CIDR)
		} else if ok && b.Node == node {
			held = append(held, b.CIDR)
		}
	}
	switch word {
	case "blocks": // that the agent has
		return of(append(whole.AssignedTo(s.cn), prefixesOf(s.cn)...))
	case "listed": // in podCIDRs
		return of(prefixesOf(s.cn))
	case "inpools":
		return of(whole.AssignedTo(s.cn))
	case "roomy", "whole":
		return s.listedThat(word), true
	case "assigned": // to the Node
		return of(whole.NodeCIDRs(s.node))
	case "parked":
		return of(whole.AssignedIn(s.cn, "default.draining.cilium-pool.io"))
	case "held":
		return of(held)
	case "cooling": // of all nodes
		return of(cooling)
	}
	return 0, false
}

// listedThat counts the blocks in podCIDRs with a free address (roomy), or with all addresses (whole).
func (s state) listedThat(word string) int {
	return countFunc(prefixesOf(s.cn), func(p netip.Prefix) bool {
		published, used := count(s.cn, p)
		return word == "roomy" && published > used || word == "whole" && published == wholeBlock(p)
	})
}

// closedBy counts the blocks that an agent has closed.
func (s state) closedBy(container string, within func(netip.Addr) bool) (n int) {
	for i := range s.blocks {
		b, ok := whole.BlockOf(&s.blocks[i])
		if closed := s.blocks[i].Status.Closed; ok && closed != nil && closed.Container == container && within(b.CIDR.Addr()) {
			n++
		}
	}
	return n
}

// addresses returns the addresses that a word means.
func (s state) addresses(word string) ([]netip.Addr, error) {
	releases := map[string]string{
		"marked": ipamoption.IPAMMarkForRelease, "acked": ipamoption.IPAMReadyForRelease,
		"refused": ipamoption.IPAMDoNotRelease, "released": ipamoption.IPAMReleased,
	}
	var out []netip.Addr
	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	switch word {
	case "pool":
		for a := range s.cn.Spec.IPAM.Pool {
			add(a)
		}
	case "used":
		for a := range s.cn.Status.IPAM.Used {
			add(a)
		}
	case "own":
		return s.own(), nil
	case "retired":
		for _, a := range s.own() {
			if string(s.cn.Status.IPAM.ReleaseIPs[a.String()]) == ipamoption.IPAMReleased {
				out = append(out, a)
			}
		}
	case "releases", "marked", "acked", "refused", "released":
		for a, is := range s.cn.Status.IPAM.ReleaseIPs {
			if word == "releases" || string(is) == releases[word] {
				add(a)
			}
		}
	default:
		return nil, fmt.Errorf("no term %q", word)
	}
	return out, nil
}

// own returns the agent's own addresses, as its report and its CiliumNode name them.
func (s state) own() []netip.Addr {
	own := map[netip.Addr]bool{}
	for addr, use := range s.cn.Status.IPAM.Used {
		if a, err := netip.ParseAddr(addr); err == nil && expand.NamesAgent(use.Owner) {
			own[a] = true
		}
	}
	for _, a := range whole.OwnAddresses(s.cn) {
		own[a] = true
	}
	return slices.Collect(maps.Keys(own))
}

// spare returns an error while a node in multi-pool mode has a block more than it needs:
// no address in it is in use and the others suffice, or the agent has returned it and it has not
// cooled down yet. The agent's request counts only once the agent has seen that pods were
// deleted.
func (e *env) spare(s state) error {
	keep := e.podsOn(s.cn.Name)
	assigned, room, asked := whole.AssignedTo(s.cn), map[bool]int{}, map[bool]int{} // by whether they are IPv4
	for _, r := range s.cn.Spec.IPAM.Pools.Requested {
		if r.Pool == "default" {
			asked[true], asked[false] = r.Needed.IPv4Addrs, r.Needed.IPv6Addrs
		}
	}
	for ipv4, most := range asked {
		if most > len(keep)+spared {
			return fmt.Errorf("it requests %d addresses for %d pods; of IPv4: %t", most, len(keep), ipv4)
		}
	}
	for _, cidr := range assigned {
		room[cidr.Addr().Is4()] += wholeBlock(cidr)
	}
	for _, cidr := range assigned {
		ipv4 := cidr.Addr().Is4()
		if !inUse(s.cn, cidr, keep) && room[ipv4]-wholeBlock(cidr) >= asked[ipv4] {
			return fmt.Errorf("%s is empty; %d of %d addresses are requested", cidr, asked[ipv4], room[ipv4])
		}
	}
	return s.held(len(assigned))
}

func countFunc[T any](all []T, is func(T) bool) (n int) {
	for _, one := range all {
		if is(one) {
			n++
		}
	}
	return n
}
