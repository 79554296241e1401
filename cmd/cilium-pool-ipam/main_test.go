package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cniv1 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/nodeipam"
)

// TestMain runs the plugin itself in processes that the tests start.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// runtime calls the plugin as a container runtime does.
type runtime struct {
	testing.TB
	dir  string
	wait float64
	args string // CNI_ARGS; "": a pod is named after its container
}

func newRuntime(t testing.TB, cidrs ...string) *runtime {
	t.Helper()
	r := &runtime{TB: t, dir: filepath.Join(t.TempDir(), "store")}
	r.setBlocks(cidrs...)
	return r
}

func (r *runtime) store() *nodeipam.Store {
	r.Helper()
	store, err := nodeipam.Open(r.dir)
	if err != nil {
		r.Fatal(err)
	}
	return store
}

func (r *runtime) setBlocks(cidrs ...string) {
	r.Helper()
	node := nodeipam.Node{OnlyDefault: true}
	for _, cidr := range cidrs {
		p := netip.MustParsePrefix(cidr)
		node.Families[ipalloc.FamilyOf(p.Addr())] = true
		node.Blocks = append(node.Blocks, nodeipam.Block{CIDR: p})
	}
	if err := r.store().SetNode(r.Context(), node); err != nil {
		r.Fatal(err)
	}
}

// call runs a command for a container, and returns the plugin's output, also beside an error.
func (r *runtime) call(ctx context.Context, command, container string, more map[string]any) (string, error) {
	config := map[string]any{"cniVersion": "1.1.0", "name": "cilium", "type": "cilium-cni",
		"ipam": map[string]any{"type": "cilium-pool-ipam", "dir": r.dir, "wait": r.wait}}
	for key, value := range more {
		config[key] = value
	}
	stdin, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+container, "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin",
		"CNI_NETNS=/var/run/netns/"+container, "CNI_ARGS="+cmp.Or(r.args, "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME="+container+";K8S_POD_UID=uid-"+container))
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// add returns the addresses of ADD, or the plugin's output instead.
func (r *runtime) add(ctx context.Context, container string) ([]netip.Addr, string) {
	out, err := r.call(ctx, "ADD", container, nil)
	result := &cniv1.Result{}
	if err == nil {
		err = json.Unmarshal([]byte(out), result)
	}
	if err != nil {
		return nil, fmt.Sprint(out, err)
	}
	var addrs []netip.Addr
	for _, ip := range result.IPs {
		addr, ok := fromStdIP(ip.Address.IP)
		if ones, bits := ip.Address.Mask.Size(); !ok || ones != bits {
			return nil, "not an address: " + ip.Address.String()
		}
		addrs = append(addrs, addr)
	}
	return addrs, ""
}

// Every command of CNI 1.1, as a runtime calls it.
func TestCommands(t *testing.T) {
	r := newRuntime(t, "10.0.0.0/30", "fd00::/126")
	expect := func(command, container, want string, more map[string]any) {
		t.Helper()
		out, err := r.call(t.Context(), command, container, more)
		if (err == nil) != (want == "") || !strings.Contains(out, want) {
			t.Errorf("%s %s: %v %s, want %q", command, container, err, out, want)
		}
	}
	addrs, failed := r.add(t.Context(), "a")
	if fmt.Sprint(addrs) != "[10.0.0.1 fd00::1]" {
		t.Fatalf("ADD: %v %s", addrs, failed)
	}
	result := func(addr string) map[string]any {
		return map[string]any{"prevResult": map[string]any{"cniVersion": "1.1.0", "ips": []any{map[string]any{"address": addr}}}}
	}
	expect("CHECK", "a", "", result("10.0.0.1/32"))
	expect("CHECK", "a", "10.0.0.2 is not assigned", result("10.0.0.2/32"))
	expect("CHECK", "b", "10.0.0.1 is not assigned", result("10.0.0.1/32"))
	expect("CHECK", "a", "needs prevResult", nil)
	if addrs, failed := r.add(t.Context(), "b"); len(addrs) != 2 {
		t.Fatalf("ADD: %v %s", addrs, failed)
	}
	expect("STATUS", "", "", nil)
	expect("ADD", "c", "no free ipv4 address of Cilium pool default", nil)
	expect("STATUS", "", "", nil)
	expect("DEL", "a", "", nil)
	expect("DEL", "a", "", nil)
	expect("CHECK", "a", "is not assigned", result("10.0.0.1/32"))
	expect("GC", "", "", map[string]any{"cni.dev/valid-attachments": []any{map[string]any{"containerID": "z", "ifname": "eth0"}}})
	if taken, err := r.store().Assignments(); len(taken) > 0 {
		t.Errorf("GC left %v, %v", taken, err)
	}
	if err := os.Remove(filepath.Join(r.dir, "node.json")); err != nil {
		t.Fatal(err)
	}
	expect("STATUS", "", "has not seen this node", nil)
	expect("ADD", "c", "has not seen this node", nil)
	expect("ADD", "c", "The log of the node agent's pod", nil)
	r.args = "IgnoreUnknown=1"
	expect("ADD", "c", "K8S_POD_UID", nil)
}

// ADD waits for a block that comes while it runs.
func TestAddWaitsForBlock(t *testing.T) {
	r := newRuntime(t, "10.0.0.0/32")
	r.wait = 60
	if _, failed := r.add(t.Context(), "a"); failed != "" {
		t.Fatal(failed)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if addrs, failed := r.add(t.Context(), "b"); fmt.Sprint(addrs) != "[10.9.0.0]" {
			t.Errorf("ADD: %v %s", addrs, failed)
		}
	})
	r.setBlocks("10.0.0.0/32", "10.9.0.0/32")
	wg.Wait()
}

// Processes are killed at any instant, and the runtime then calls DEL until it passes, as the kubelet does. No address
// is in two containers, and none is left in the end. CNI_KILLS sets the number of containers.
func TestKilled(t *testing.T) {
	containers := 150
	if n := os.Getenv("CNI_KILLS"); n != "" {
		if _, err := fmt.Sscan(n, &containers); err != nil {
			t.Fatal(err)
		}
	}
	r := newRuntime(t, "10.0.0.0/28", "10.9.0.0/29")
	var mu sync.Mutex
	live := map[netip.Addr]string{}
	// killed runs do with a context that may end at any instant of a call.
	killed := func(do func(ctx context.Context)) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if rand.IntN(2) == 0 {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), time.Duration(rand.IntN(40_000))*time.Microsecond)
		}
		defer cancel()
		do(ctx)
	}
	add := func(container string) {
		killed(func(ctx context.Context) {
			addrs, _ := r.add(ctx, container)
			mu.Lock()
			defer mu.Unlock()
			for _, addr := range addrs {
				if other, ok := live[addr]; ok {
					t.Errorf("%s is in %s and %s", addr, other, container)
				}
				live[addr] = container
			}
		})
	}
	del := func(container string) {
		mu.Lock()
		maps.DeleteFunc(live, func(_ netip.Addr, owner string) bool { return owner == container })
		mu.Unlock()
		for passed := false; !passed; {
			killed(func(ctx context.Context) {
				_, err := r.call(ctx, "DEL", container, nil)
				passed = err == nil
			})
		}
	}
	next := make(chan int)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var running []string // each beside the next few
			for n := range next {
				container := fmt.Sprint("c", n)
				add(container)
				running = append(running, container)
				if len(running) > rand.IntN(4) {
					del(running[0])
					running = running[1:]
				}
			}
			for _, container := range running {
				del(container)
			}
		})
	}
	for n := range containers {
		next <- n
	}
	close(next)
	wg.Wait()
	if taken, err := r.store().Assignments(); len(taken) > 0 || err != nil {
		t.Errorf("left %v, %v", taken, err)
	}
}
