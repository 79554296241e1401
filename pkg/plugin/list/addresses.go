package list

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// addressRow is an address that a PodIPPin keeps for an owner, for users and scripts.
type addressRow struct {
	Pin     string     `json:"pin"`
	Address netip.Addr `json:"address"`
	Family  string     `json:"family"`
	// Namespace and Owner name the owner: Owner is the name of a pod, or KEY=VALUE of a label.
	Namespace string `json:"namespace"`
	Owner     string `json:"owner"`
	// Pool is the PodIPPool that has the address; empty: none.
	Pool string `json:"pool,omitempty"`
	// Node holds the address for the owner, since Since; empty: none does.
	Node  string    `json:"node,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Pod has the address, as namespace/name; empty: none does, or pods may not be read.
	Pod string `json:"pod,omitempty"`
	// MadeBy is podAddresses for a pin of the operator, else user.
	MadeBy string `json:"madeBy"`
	// Freed is when the address is free for other owners.
	Freed string `json:"freed"`
	// State is the reason of the pin's condition Ready, with its Message. Empty: the operator has not seen the pin.
	State   string `json:"state,omitempty"`
	Message string `json:"message,omitempty"`
}

// owner is namespace/owner, as arguments name it.
func (r *addressRow) owner() string { return r.Namespace + "/" + r.Owner }

// isNamed reports whether an argument names the row: by its address, by its owner with or without the namespace, or by
// NAMESPACE/.
func (r *addressRow) isNamed(arg string) bool {
	if addr, err := netip.ParseAddr(arg); err == nil {
		return addr.Unmap() == r.Address
	}
	return arg == r.owner() || arg == r.Owner || arg == r.Namespace+"/"
}

func newAddresses(e *cli.Env) *cobra.Command {
	o := cli.Output{Kind: "AddressList", Named: v1alpha1.GroupVersion.WithKind("PodIPPin")}
	pool := ""
	cmd := &cobra.Command{
		Use:     "addresses [ADDRESS|OWNER...]",
		Aliases: []string{"address"},
		Short:   "List kept addresses: their owners, nodes and pods, and when they are freed",
		Long: `Lists the addresses that PodIPPins keep for an owner: the pods of one name, or the pods
with one value of a label. An owner is written as its pod's name or as KEY=VALUE, after
its namespace and a slash or without; NAMESPACE/ names all owners of a namespace.

Node holds the address for the owner, since when Since says; Pod has it now. Made By is
podAddresses for a pin that the operator made for a pool with spec.podAddresses, else
user. State is the reason of the pin's condition Ready: Held, NotClaimed while no node has
it, or a fault; -o json has the message.

-o wide also shows the PodIPPin, and when the address is freed.`,
		Example: cli.Examples("get addresses", "get addresses shop/web-0 -o wide", "get addresses shop/vm.kubevirt.io/name=db", "get addresses shop/ --pool vms",
			"get addresses 10.20.0.5", "get addresses -o json | jq '.items[] | select(.node == null)'"),
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return completeAddresses(cmd, e)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.Read(cmd.Context())
			if err != nil {
				return err
			}
			if err := checkFilter(c, BlockFilter{Pool: pool}); err != nil {
				return err
			}
			rows, err := namedAddresses(addressRows(c), args)
			if err != nil {
				return err
			}
			rows = slices.DeleteFunc(rows, func(r addressRow) bool { return pool != "" && r.Pool != pool })
			return e.Print(&o, rows, addressTable(c, rows))
		},
	}
	o.AddFlags(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "only addresses of this pool")
	_ = cmd.RegisterFlagCompletionFunc("pool", e.CompletePools)
	return cmd
}

// completeAddresses completes owners and addresses. It reports no error to the shell.
func completeAddresses(cmd *cobra.Command, e *cli.Env) ([]string, cobra.ShellCompDirective) {
	c, err := e.Client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list := &v1alpha1.PodIPPinList{}
	if err := c.List(cmd.Context(), list); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range list.Items {
		if pin, err := crd.PinFrom(&list.Items[i]); err == nil && pin.Owner != "" {
			names = append(names, pin.Owner, pin.CIDR.Addr().String())
		}
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// namedAddresses returns the rows that arguments name, all without arguments.
func namedAddresses(rows []addressRow, args []string) ([]addressRow, error) {
	for _, arg := range args {
		if slices.ContainsFunc(rows, func(r addressRow) bool { return r.isNamed(arg) }) {
			continue
		}
		if addr, err := netip.ParseAddr(arg); err == nil {
			return nil, fmt.Errorf("no PodIPPin keeps %s for an owner: kubectl cilium-pool whois %s says who has it", addr, addr)
		}
		var owners []string
		for i := range rows {
			owners = append(owners, rows[i].owner())
		}
		return nil, fmt.Errorf("no PodIPPin keeps an address for %s%s", arg, suggest.DidYouMean(arg, owners))
	}
	return slices.DeleteFunc(rows, func(r addressRow) bool {
		return len(args) > 0 && !slices.ContainsFunc(args, r.isNamed)
	}), nil
}

// addressRows returns a row for each pin that is for an owner, sorted by address.
func addressRows(c *clusterview.Cluster) []addressRow {
	pods := map[netip.Addr]string{}
	for _, node := range c.NodeNames() {
		for addr, user := range c.Users(node) {
			if strings.Contains(user, "/") {
				pods[addr] = user
			}
		}
	}
	rows := []addressRow{}
	for i := range c.Objects.Pins {
		obj := &c.Objects.Pins[i]
		if pin, err := crd.PinFrom(obj); err == nil && pin.Owner != "" {
			rows = append(rows, addressRowOf(c, obj, pin, pods[pin.CIDR.Addr()]))
		}
	}
	slices.SortFunc(rows, func(a, b addressRow) int { return cmp.Or(a.Address.Compare(b.Address), strings.Compare(a.Pin, b.Pin)) })
	return rows
}

// addressRowOf returns the row of a pin. pod is the one with the address, if any.
func addressRowOf(c *clusterview.Cluster, obj *v1alpha1.PodIPPin, pin crd.Pin, pod string) addressRow {
	addr := pin.CIDR.Addr()
	row := addressRow{Pin: obj.Name, Address: addr, Family: ipalloc.FamilyOf(addr).String(), Pod: pod, MadeBy: "user", Freed: "never by itself: delete the pin"}
	row.Namespace, row.Owner, _ = strings.Cut(pin.Owner, "/")
	if pool := c.State.Pools.Having(pin.CIDR); pool != nil {
		row.Pool = pool.Name
	}
	if block, held := c.State.Ledger.Block(pin.CIDR); held && crd.OwnerOfPool(block.CiliumPool) == pin.Owner {
		row.Node = block.Node
		row.Since = block.Created
	}
	if ready := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PinReady); ready != nil {
		row.State = ready.Reason
		row.Message = ready.Message
	}
	if ciliumpool.IsOurs(obj) {
		hasPod := pod != "" || len(c.State.Pods.NodesOf(pin.Owner)) > 0
		row.MadeBy = "podAddresses"
		row.Freed = freedWhen(c, obj, c.State.Pools.ReleaseOf(obj, pin), hasPod)
	}
	return row
}

// freedWhen returns when the operator frees the address of a pin that it made.
func freedWhen(c *clusterview.Cluster, obj *v1alpha1.PodIPPin, release state.Release, hasPod bool) string {
	switch {
	case release.Stays != "":
		return "never by itself, as " + release.Stays
	case release.Leaves && hasPod:
		return "once its pod ends, as its range drains"
	case release.Leaves:
		return "now, as its range drains"
	case hasPod || c.CannotRead("pods"):
		return duration.HumanDuration(release.After) + " after its last pod"
	}
	rest := release.After
	if ready := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PinReady); ready != nil && ready.Reason != v1alpha1.PinHeld {
		rest -= c.Now.Sub(ready.LastTransitionTime.Time)
	}
	return "in " + duration.HumanDuration(min(max(0, rest), release.After)) + ", unless a pod comes"
}

func addressTable(c *clusterview.Cluster, rows []addressRow) cli.Table {
	return cli.TableOf("kept addresses", rows, func(r *addressRow) []any {
		pod := cli.Dash(r.Pod)
		if r.Pod == "" && c.CannotRead("pods") {
			pod = "<unknown>"
		}
		since := "-"
		if r.Node != "" {
			since = cli.Age(c.Now, r.Since)
		}
		return []any{
			r.Pin, r.Address, r.Namespace, r.Owner, cli.Dash(r.Pool), cli.Dash(r.Node), strings.TrimPrefix(pod, r.Namespace+"/"), since, r.MadeBy, cli.Dash(r.State), r.Freed,
		}
	}, "Pin+", "Address", "Namespace", "Owner", "Pool", "Node", "Pod", "Since", "Made By", "State", "Freed+")
}
