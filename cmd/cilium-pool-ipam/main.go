// Command cilium-pool-ipam is a CNI IPAM plugin: it assigns addresses of the node's PodIPBlocks. Cilium's CNI plugin
// runs it in ipam.mode delegated-plugin (Cilium v1.20.2, plugins/cilium-cni/cmd/cmd.go).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cniv1 "github.com/containernetworking/cni/pkg/types/100"
	cniversion "github.com/containernetworking/cni/pkg/version"
	"go4.org/netipx"

	"github.com/cilium-pool/cilium-pool-operator/pkg/nodeipam"
)

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del, Check: check, GC: gc, Status: status}, cniversion.All,
		"cilium-pool-ipam assigns addresses of the node's PodIPBlocks. Cilium's CNI plugin runs it.")
}

// config is the network configuration, as far as it is for this plugin.
type config struct {
	types.NetConf
	IPAM struct {
		types.IPAM
		// Dir is the node's store; "": nodeipam.DefaultDir.
		Dir string `json:"dir"`
		// Wait is the number of seconds that ADD waits for a free address. Absent: defaultWait.
		Wait *float64 `json:"wait"`
	} `json:"ipam"`
}

// defaultWait covers the claim of another block. After a failed ADD the kubelet waits for 10 to 15 s
// (pkg/kubelet/pod_workers.go, backOffPeriod).
const defaultWait = 10 * time.Second

// lockWait is longer than any process holds the lock of the store.
const lockWait = 10 * time.Second

// The time between two attempts to find a free address grows.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 500 * time.Millisecond
)

// podArgs are the arguments that container runtimes pass for a pod (CNI_ARGS).
type podArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE types.UnmarshallableString
	K8S_POD_NAME      types.UnmarshallableString
	K8S_POD_UID       types.UnmarshallableString
}

// errPluginNotAvailable is STATUS's code for an ADD that would fail (CNI 1.1, section 3).
const errPluginNotAvailable = 50

// open reads the configuration and opens the store.
func open(args *skel.CmdArgs) (*config, *nodeipam.Store, error) {
	conf := &config{}
	if err := json.Unmarshal(args.StdinData, conf); err != nil {
		return nil, nil, types.NewError(types.ErrDecodingFailure, "cannot read the network configuration", err.Error())
	}
	dir := conf.IPAM.Dir
	if dir == "" {
		dir = nodeipam.DefaultDir
	}
	store, err := nodeipam.Open(dir)
	if err != nil {
		return nil, nil, types.NewError(types.ErrIOFailure, "cannot open the store of addresses", err.Error())
	}
	return conf, store, nil
}

func attachmentOf(args *skel.CmdArgs) nodeipam.Attachment {
	return nodeipam.Attachment{Container: args.ContainerID, Interface: args.IfName}
}

// ownerOf returns the pod's sandbox that a command is for.
func ownerOf(args *skel.CmdArgs) (nodeipam.Owner, error) {
	pod := podArgs{}
	if err := types.LoadArgs(args.Args, &pod); err != nil {
		return nodeipam.Owner{}, types.NewError(types.ErrInvalidEnvironmentVariables, "cannot read CNI_ARGS", err.Error())
	}
	owner := nodeipam.Owner{Attachment: attachmentOf(args), UID: string(pod.K8S_POD_UID), Netns: args.Netns}
	if pod.K8S_POD_NAME != "" {
		owner.Pod = string(pod.K8S_POD_NAMESPACE + "/" + pod.K8S_POD_NAME)
	}
	return owner, nil
}

func add(args *skel.CmdArgs) error {
	conf, store, err := open(args)
	if err != nil {
		return err
	}
	owner, err := ownerOf(args)
	if err != nil {
		return err
	}
	if owner.UID == "" {
		return types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS has no K8S_POD_UID", "The container runtime must pass it, as containerd and CRI-O do")
	}
	wait := defaultWait
	if conf.IPAM.Wait != nil {
		wait = time.Duration(*conf.IPAM.Wait * float64(time.Second))
	}
	addrs, err := assign(store, owner, wait)
	if err != nil {
		return err
	}
	result := &cniv1.Result{CNIVersion: cniv1.ImplementedSpecVersion}
	for _, addr := range addrs {
		single := netip.PrefixFrom(addr, addr.BitLen())
		result.IPs = append(result.IPs, &cniv1.IPConfig{Address: *netipx.PrefixIPNet(single)})
	}
	return types.PrintResult(result, conf.CNIVersion)
}

// assign assigns addresses, and waits for a block if none is free.
func assign(store *nodeipam.Store, owner nodeipam.Owner, wait time.Duration) ([]netip.Addr, error) {
	deadline := time.Now().Add(wait)
	parent := os.Getppid()
	for retry := firstRetry; ; retry = min(2*retry, lastRetry) {
		if os.Getppid() != parent { // the runtime has called DEL
			return nil, types.NewError(types.ErrTryAgainLater, "the process that asked for an address is gone", "")
		}
		ctx, cancel := context.WithTimeout(context.Background(), lockWait)
		addrs, err := store.Assign(ctx, owner)
		cancel()
		if err == nil {
			return addrs, nil
		}
		var none *nodeipam.NoAddressError
		var refused *nodeipam.RefusedError // the pool that selects the pod may be on its way
		if !errors.As(err, &none) && !errors.As(err, &refused) && !errors.Is(err, nodeipam.ErrNotReady) {
			return nil, types.NewError(types.ErrIOFailure, "cannot assign an address", err.Error())
		}
		if time.Now().After(deadline) {
			return nil, types.NewError(types.ErrTryAgainLater, err.Error(), fmt.Sprintf("waited for %s. %s", wait, whereToLook(err)))
		}
		time.Sleep(retry)
	}
}

// whereToLook says what tells more about an error of Assign.
func whereToLook(err error) string {
	if errors.Is(err, nodeipam.ErrNotReady) {
		return "The log of the node agent's pod on this node says why"
	}
	return "The condition cilium-pool.io/PodAddressShortage of the Node says why"
}

func del(args *skel.CmdArgs) error {
	_, store, err := open(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	owner, err := ownerOf(args)
	if err != nil {
		return err
	}
	if err := store.ReleasePod(ctx, owner); err != nil {
		return types.NewError(types.ErrIOFailure, "cannot release the pod's addresses", err.Error())
	}
	return nil
}

// check finds addresses of the result of ADD that the pod no longer has.
func check(args *skel.CmdArgs) error {
	conf, store, err := open(args)
	if err != nil {
		return err
	}
	if err := cniversion.ParsePrevResult(&conf.NetConf); err != nil {
		return types.NewError(types.ErrDecodingFailure, "cannot read prevResult", err.Error())
	}
	if conf.PrevResult == nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "CHECK needs prevResult", "")
	}
	result, err := cniv1.NewResultFromResult(conf.PrevResult)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "cannot read prevResult", err.Error())
	}
	taken, err := store.Assignments()
	if err != nil {
		return types.NewError(types.ErrIOFailure, "cannot read the store of addresses", err.Error())
	}
	for _, ip := range result.IPs {
		if addr, ok := fromStdIP(ip.Address.IP); !ok || taken[addr].Attachment != attachmentOf(args) {
			return types.NewError(types.ErrUnknownContainer, fmt.Sprintf("address %s is not assigned to container %s", ip.Address.IP, args.ContainerID), "")
		}
	}
	return nil
}

func fromStdIP(ip net.IP) (netip.Addr, bool) {
	addr, ok := netip.AddrFromSlice(ip)
	return addr.Unmap(), ok
}

// gc releases the addresses of all attachments but the listed ones.
func gc(args *skel.CmdArgs) error {
	conf, store, err := open(args)
	if err != nil {
		return err
	}
	if conf.ValidAttachments == nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "GC needs cni.dev/valid-attachments", "")
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	err = store.ReleaseWhere(ctx, func(_ netip.Addr, owner nodeipam.Owner) bool {
		isOwner := func(a types.GCAttachment) bool {
			return a.ContainerID == owner.Container && a.IfName == owner.Interface
		}
		return owner.Container != "" && !slices.ContainsFunc(conf.ValidAttachments, isOwner)
	})
	if err != nil {
		return types.NewError(types.ErrIOFailure, "cannot release addresses", err.Error())
	}
	return nil
}

// status reports whether ADD can pass. A node without a free address is ready nevertheless: it gets further blocks once
// pods are bound to it.
func status(args *skel.CmdArgs) error {
	_, store, err := open(args)
	if err != nil {
		return err
	}
	if _, err := store.Ready(); err != nil {
		return types.NewError(errPluginNotAvailable, err.Error(), "")
	}
	return nil
}
