//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
)

const (
	// scaleTimeout is the time for a Deployment's pods, and returnTimeout the time for blocks
	// to be returned: they are idle, the operator asks the agent, the agent agrees at its next
	// report, and the block cools down.
	scaleTimeout  = 6 * time.Minute
	returnTimeout = 4 * time.Minute
)

type command func(context.Context, *env, *script.Arguments) error

// commands adds these commands to testscript's own and those of test/harness/script. A line of
// exec or until runs in the checkout, with the variables of environment in bed.go. Usage:
//
//	cluster [dual-stack] [old-kubelet]   start an empty cluster; kubelet of n2 is the old one
//	cluster installed|keep   take over the one that an earlier scenario kept, or start one as
//	    docs/install.md says; keep this one
//	documented [TEXT]   run the commands of docs/install.md that begin so
//	ready [peer]        wait for agents, our operator unless peer, nodes and probes
//	healthy             operator and node agents have not restarted, and lacked no right
//	block NAME [NODE=n1]; page PATH [HEADING...]   run a block of docs/migration.md, or all blocks of a page, or of sections
//	image FILE          import an image into all nodes
//	scale NAME N        wait until a Deployment has just N pods, all Ready
//	remember NAME [SELECTOR]; kept NAME   running pods have kept UID, address and containers since then
//	blocks NODE >N|<=N|>NAME|<=NAME   wait until a node has more, or no more; than remembered
//	pings start|none|note [SELECTOR]   probes ping each other; none was lost since the last time, or so many
//	budgets APP=N…; budgets held   watch that so many pods are Ready, and that others are evicted
//	served              the Service answers each node and a pod on each
//	reach APP all|none [from=APP]   pods of other nodes reach one pod in each block, or none
//	metrics outside|node answer|refuse   the operator's, from outside the cluster, or another node
//	shortage none|note  sandboxes that failed for want of an address since the cluster was ready
//	full POOL N         wait until pods use all addresses of a pool, and the rest of N is pending
//	node NAME start|stop|wipe|run COMMAND; kubelet NAME restart|upgrade; kill-leader; outage begin|end
//	routes REGEXP       wait until no node has such a route
func commands() map[string]command {
	return map[string]command{
		"cluster": cmdCluster, "documented": cmdDocumented, "ready": cmdReady, "healthy": cmdHealthy, "block": cmdBlock, "page": cmdPage,
		"image": cmdImage, "scale": cmdScale, "remember": cmdRemember, "kept": cmdKept, "blocks": cmdBlocks,
		"pings": cmdPings, "budgets": cmdBudgets, "served": cmdServed, "reach": cmdReach,
		"metrics": cmdMetrics, "shortage": cmdShortage, "full": cmdFull, "node": cmdNode, "kubelet": cmdKubelet, "kill-leader": cmdKillLeader,
		"outage": cmdOutage, "routes": cmdRoutes,
	}
}

func cmdCluster(ctx context.Context, e *env, a *script.Arguments) error {
	if a.Take("keep") {
		e.installed = true
		return nil
	}
	reuse := a.Take("installed")
	if !reuse || !e.installed {
		e.installed = false
		e.cluster.DualStack, e.cluster.Kubelets = a.Take("dual-stack"), map[int]string{}
		if a.Take("old-kubelet") {
			e.cluster.Kubelets[2] = e.options.oldKubelet
		}
		if err := e.start(ctx); err != nil {
			return err
		}
	}
	if reuse && !e.installed {
		if err := e.install(ctx); err != nil {
			return err
		}
		e.installed = true
	}
	return e.countShortage(ctx)
}

func cmdDocumented(ctx context.Context, e *env, a *script.Arguments) error {
	return e.documented(ctx, a.Word())
}

func cmdReady(ctx context.Context, e *env, a *script.Arguments) error {
	began, peer := time.Now(), a.Take("peer")
	err := e.ready(ctx, peer)
	e.Check(err == nil, "agents, operator, nodes and probes Ready, after", "%s", seconds(began))
	return err
}

func cmdHealthy(ctx context.Context, e *env, _ *script.Arguments) error {
	pods, err := e.pods(ctx, "--namespace=kube-system", "--selector=app.kubernetes.io/instance=cilium-pool-operator") // node agents, too
	restarts, refused := 0, 0
	for _, p := range pods {
		log, logErr := e.cluster.Kubectl(ctx, "logs", "--namespace=kube-system", p.Name)
		err, refused, restarts = errors.Join(err, logErr), refused+strings.Count(log, " is forbidden: "), restarts+restartsOf(p)
	}
	e.Check(err == nil && restarts+refused == 0 && len(pods) > 0, "restarts of the operator's containers; requests refused for want of rights", "%d; %d", restarts, refused)
	return err
}

func cmdImage(ctx context.Context, e *env, a *script.Arguments) error {
	return e.importAll(ctx, a.Word())
}

func cmdScale(ctx context.Context, e *env, a *script.Arguments) error {
	began, name := time.Now(), a.Word()
	n, err := strconv.Atoi(a.Word())
	if err == nil {
		err = e.scale(ctx, name, n)
	}
	e.Check(err == nil, fmt.Sprintf("%s has %d pods, all Ready, after", name, n), "%s", seconds(began))
	return err
}

func (e *env) scale(ctx context.Context, name string, n int) error {
	if _, err := e.cluster.Kubectl(ctx, "scale", "deployment", name, fmt.Sprintf("--replicas=%d", n)); err != nil {
		return err
	}
	return kube.Await(ctx, scaleTimeout, fmt.Sprintf("%s has %d pods, all Ready", name, n), func(ctx context.Context) error {
		d, err := query[appsv1.Deployment](ctx, e.bed, "deployment", name)
		pods, podsErr := e.pods(ctx, "--selector=app="+name)
		s := d.Status
		if s.ObservedGeneration != d.Generation || int(s.ReadyReplicas) != n || len(pods) != n {
			err = errors.Join(err, fmt.Errorf("%d pods, %d Ready", len(pods), s.ReadyReplicas))
		}
		return errors.Join(err, podsErr)
	})
}

// snapshot is the state of running pods, by name, and the number of blocks, by node.
type snapshot struct {
	selector string
	pods     map[string]string
	blocks   map[string]int
}

// snapshot leaves out pods in the host network.
func (e *env) snapshot(ctx context.Context, selector string) (s snapshot, err error) {
	s.selector, s.pods = selector, map[string]string{}
	pods, err := e.pods(ctx, "--all-namespaces", "--selector="+selector)
	for _, p := range pods {
		if !p.Spec.HostNetwork && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			s.pods[p.Name] = fmt.Sprintf("%s %s %d", p.UID, p.Status.PodIP, restartsOf(p))
		}
	}
	blocks, blocksErr := e.blocks(ctx)
	s.blocks = map[string]int{}
	for _, b := range blocks {
		s.blocks[b.Spec.NodeName]++
	}
	return s, errors.Join(err, blocksErr)
}

func cmdRemember(ctx context.Context, e *env, a *script.Arguments) (err error) {
	name := a.Word()
	e.remembered[name], err = e.snapshot(ctx, cmp.Or(a.Word(), "app!=burst")) // Scenarios scale that one.
	return err
}

func cmdKept(ctx context.Context, e *env, a *script.Arguments) error {
	before, known := e.remembered[a.Word()]
	now, err := e.snapshot(ctx, before.selector)
	kept := 0
	for pod, is := range before.pods {
		if now.pods[pod] == is {
			kept++
		} else {
			e.say("%s was %s, is %s", pod, is, now.pods[pod])
		}
	}
	e.Check(known && err == nil && kept > 0 && kept == len(before.pods), "pods that run on, with their address", "%d of %d", kept, len(before.pods))
	return err
}

func cmdBlocks(ctx context.Context, e *env, a *script.Arguments) error {
	node, condition := a.Word(), a.Word()
	limit, most := strings.CutPrefix(condition, "<=")
	limit = strings.TrimPrefix(limit, ">")
	want, err := strconv.Atoi(limit)
	if before, known := e.remembered[limit]; known {
		want, err = before.blocks[node], nil
	}
	if err != nil {
		return err
	}
	began, is := time.Now(), 0
	err = kube.Await(ctx, returnTimeout, "the number of blocks of "+node+" is "+condition, func(ctx context.Context) error {
		s, err := e.snapshot(ctx, "")
		if is = s.blocks[node]; err == nil && (is <= want) != most {
			err = fmt.Errorf("%d blocks, not %s, which is %d", is, condition, want)
		}
		return err
	})
	e.Check(err == nil, "blocks of "+node+": "+condition, "%d, after %s", is, seconds(began))
	return err
}

func cmdNode(ctx context.Context, e *env, a *script.Arguments) error {
	name, do := a.Word(), a.Word()
	number, err := strconv.Atoi(strings.TrimPrefix(name, "n"))
	if err != nil {
		return err
	}
	switch do {
	case "start":
		return e.startNode(ctx, number)
	case "stop":
		return e.cluster.StopNode(number)
	case "run":
		_, err := e.cluster.State.Run(ctx, name, a.Rest...)
		return err
	}
	if err := e.cluster.WipeNode(number); err != nil {
		return err
	}
	_, err = e.cluster.Kubectl(ctx, "delete", "node", name)
	return err
}

// startNode starts a node and waits until the probe on it has become Ready since: the API
// server's status of a node without power is outdated.
func (e *env) startNode(ctx context.Context, number int) error {
	began, name := time.Now(), kube.NodeName(number)
	if err := errors.Join(e.cluster.StartNode(ctx, number), e.cluster.Import(ctx, number, e.options.operator)); err != nil {
		return err
	}
	err := kube.Await(ctx, time.Minute, "the node is registered", func(ctx context.Context) error {
		_, err := e.cluster.Kubectl(ctx, "get", "node", name)
		return err
	})
	if err := errors.Join(err, e.documented(ctx, labelNodes)); err != nil {
		return err
	}
	err = kube.Await(ctx, readyTimeout, "the probe on "+name+" is Ready", func(ctx context.Context) error {
		pods, err := e.pods(ctx, "--selector=app=probe", "--field-selector=spec.nodeName="+name)
		if !slices.ContainsFunc(pods, func(p corev1.Pod) bool {
			return slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
				return c.Ready && c.State.Running != nil && c.State.Running.StartedAt.After(began.Add(-time.Second))
			})
		}) {
			err = errors.Join(err, fmt.Errorf("none of %d pods", len(pods)))
		}
		return err
	})
	e.Check(err == nil, name+" starts, its pods run after", "%s", seconds(began))
	return errors.Join(err, e.awaitKubelet(ctx, name))
}

func cmdKubelet(ctx context.Context, e *env, a *script.Arguments) error {
	began, name, do := time.Now(), a.Word(), a.Word()
	number, err := strconv.Atoi(strings.TrimPrefix(name, "n"))
	if err == nil && do == "upgrade" {
		err = e.cluster.SetKubelet(number, filepath.Join(e.options.binDir, "kubelet"))
	}
	if err == nil {
		err = e.cluster.KillProgram(name, "kubelet")
	}
	if err != nil {
		return err
	}
	err = e.awaitKubelet(ctx, name)
	e.Check(err == nil, "kubelet of "+name+": "+do+", took", "%s", seconds(began))
	return err
}

// awaitKubelet waits until a node's kubelet has read all of its pods from the API
// server. A kubelet that has just started renews its Lease and is Ready before
// that, and until then answers exec with "pod does not exist": it looks pods up
// in the same list that it serves as /pods.
func (e *env) awaitKubelet(ctx context.Context, node string) error {
	err := kube.Await(ctx, time.Minute, "kubelet of "+node+" has read its pods", func(ctx context.Context) error {
		bound, err := e.pods(ctx, "--all-namespaces", "--field-selector=spec.nodeName="+node)
		read, readErr := query[corev1.PodList](ctx, e.bed, "--raw", "/api/v1/nodes/"+node+"/proxy/pods")
		for _, p := range bound {
			if !slices.ContainsFunc(read.Items, func(r corev1.Pod) bool { return r.UID == p.UID }) {
				err = errors.Join(err, fmt.Errorf("it lacks %s/%s", p.Namespace, p.Name))
			}
		}
		return errors.Join(err, readErr)
	})
	if err == nil {
		_, err = e.cluster.Kubectl(ctx, "wait", "node", node, "--for=condition=Ready", "--timeout=1m")
	}
	return err
}

func cmdKillLeader(ctx context.Context, e *env, _ *script.Arguments) error {
	holder, err := e.cluster.Kubectl(ctx, "get", "lease", "cilium-pool-operator", "--namespace=kube-system", "--output=jsonpath={.spec.holderIdentity}")
	if err != nil {
		return err
	}
	pods, err := e.pods(ctx, "--namespace=kube-system", "--selector=app.kubernetes.io/name=cilium-pool-operator")
	killed := 0
	for _, p := range pods {
		if strings.HasPrefix(holder, p.Name) || strings.HasPrefix(holder, p.Spec.NodeName+"_") {
			killed++
			err = errors.Join(err, e.cluster.KillProgram(p.Spec.NodeName, "cilium-pool-operator"))
		}
	}
	e.Check(killed == 1, "leaders found and killed", "%d", killed)
	return err
}

func cmdOutage(ctx context.Context, e *env, a *script.Arguments) error {
	if a.Take("begin") {
		return e.cluster.Outage()
	}
	return e.cluster.EndOutage(ctx)
}

func cmdRoutes(ctx context.Context, e *env, a *script.Arguments) error {
	old, err := regexp.Compile(a.Word())
	if err != nil {
		return err
	}
	err = kube.Await(ctx, time.Minute, "no route matches "+old.String(), func(ctx context.Context) error {
		for number := 1; number <= e.options.nodes; number++ {
			text, err := e.cluster.State.Run(ctx, kube.NodeName(number), "ip", "-4", "route", "show", "table", "all")
			if err != nil {
				return err
			}
			if found := old.FindString(text); found != "" {
				return fmt.Errorf("%s routes %s", kube.NodeName(number), found)
			}
		}
		return nil
	})
	e.Check(err == nil, "no route matches "+old.String(), "%t", err == nil)
	return err
}

// collect saves the state of a cluster that is about to be deleted.
func (b *bed) collect(scenario string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for name, args := range map[string][]string{
		"pods":       {"get", "pods", "--all-namespaces", "--output=wide"},
		"events":     {"get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"},
		"blocks":     {"get", "podippools,podipblocks,ciliumnodes", "--output=yaml"},
		"operator":   {"logs", "--namespace=kube-system", "--selector=app.kubernetes.io/instance=cilium-pool-operator", "--all-containers", "--tail=-1", "--prefix"},
		"agents":     {"logs", "--namespace=kube-system", "--selector=k8s-app=cilium", "--container=cilium-agent", "--tail=2000", "--prefix"},
		"ciliumpods": {"describe", "pods", "--namespace=kube-system"},
	} {
		out, err := b.cluster.Kubectl(ctx, args...)
		if err != nil {
			out += "\n" + err.Error() + "\n"
		}
		path := filepath.Join(b.cluster.Logs(), scenario+"-"+name+".txt")
		if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
			b.say("%v", err)
		}
	}
}
