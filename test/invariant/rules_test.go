package invariant_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// Each case starts from the state of begun: node a holds block 10.9.0.0-30 of pool p, with 10.9.0.1
// and 10.9.0.2 published, and a foreign entry 172.16.0.1 and podCIDR 172.16.0.0/24; node b has an
// empty CiliumNode. It writes plant, in the notation of write.
func TestViolations(t *testing.T) {
	const (
		grow = "block 10.9.0.4/30 a; "
		four = "list 172.16.0.0/24 10.9.0.0/30 10.9.0.4/30"
		// A pool's range comes to contain the foreign IP of node a, with a's CiliumNode deleted,
		// made again empty, and deleted again.
		byHand = "range 172.16.0.0/24; cn a gone; cn a new; cn a gone; "
		stale  = "; cn a release 10.9.0.1 marked-for-release; cn a unpublish 10.9.0.1"
		v6     = "cn a own fd00::1 10.9.0.1; "
		router = "cn a use 10.9.0.1 router; "
	)
	for name, test := range map[string]struct {
		plant string
		want  []string // rule and subject
	}{
		"nothing happens": {},
		"grow and shrink by the rules": {plant: grow + "cn a publish 10.9.0.5 10.9.0.6, " + four +
			"; cn a release 10.9.0.1 marked-for-release; cn a release 10.9.0.2 marked-for-release; cn a release 10.9.0.1 ready-for-release" +
			"; cn a release 10.9.0.2 ready-for-release; cn a unpublish 10.9.0.1 10.9.0.2, list 172.16.0.0/24 10.9.0.4/30" +
			"; block 10.9.0.0/30 cool; block 10.9.0.0/30 gone"},
		"an IP in two pools":                  {"cn b publish 172.16.0.1", []string{"1 cn b"}},
		"an IP in two pools, in another form": {"cn b publish ::ffff:172.16.0.1", []string{"1 cn b"}},
		"an IP of another node's block":       {"cn b publish 10.9.0.3", []string{"1 cn b"}},
		"published before the block exists":   {"cn b publish 10.9.0.9, list 10.9.0.8/30; block 10.9.0.8/30 b", []string{"1 cn b", "3 cn b"}},
		"published from a block that cools down": {grow + "block 10.9.0.4/30 cool; cn a label; cn a publish 10.9.0.5, " + four,
			[]string{"1 cn a"}},
		"a patch that came late to a block that cools down":  {grow + "block 10.9.0.4/30 cool; cn a publish 10.9.0.5, " + four, nil},
		"published while its release entry stands":           {grow + "cn a release 10.9.0.5 ready-for-release; cn a publish 10.9.0.5 10.9.0.6, " + four, []string{"2 cn a"}},
		"a block made over another node's IPs":               {"block 10.9.0.0/29 b", []string{"1 block 10.9.0.0-29"}},
		"a block deleted with IPs in the pool":               {"block 10.9.0.0/30 cool; block 10.9.0.0/30 gone", []string{"1 block 10.9.0.0-30"}},
		"a block deleted without cooldown":                   {grow + "block 10.9.0.4/30 gone", []string{"1 block 10.9.0.4-30"}},
		"an IP leaves without the agent's word":              {"cn a unpublish 10.9.0.1", []string{"2 cn a"}},
		"an IP leaves as the agent refused":                  {"cn a release 10.9.0.1 do-not-release; cn a unpublish 10.9.0.1", []string{"2 cn a"}},
		"an IP leaves while reported used":                   {"cn a release 10.9.0.1 ready-for-release; cn a use 10.9.0.1 default/x; cn a unpublish 10.9.0.1", []string{"2 cn a"}},
		"an IP leaves while a pod has it":                    {"cn a release 10.9.0.1 ready-for-release; pod a 10.9.0.1; cn a unpublish 10.9.0.1", []string{"2 cn a"}},
		"an IP leaves while it is the agent's own":           {"cn a release 10.9.0.1 ready-for-release; cn a health 10.9.0.1; cn a unpublish 10.9.0.1", []string{"2 cn a"}},
		"an IP leaves as its Node is gone":                   {"node a gone; cn a unpublish 10.9.0.1 10.9.0.2, list 172.16.0.0/24", nil},
		"a CiliumNode deleted under a pod":                   {"pod a 10.9.0.1; cn a gone", []string{"2 cn a"}},
		"a CiliumNode deleted with an IP its agent reports":  {"cn a use 10.9.0.1 default/x; cn a gone", []string{"2 cn a"}},
		"a CiliumNode deleted that an older Node owns":       {"cn a owner older; pod a 10.9.0.1; cn a gone", nil},
		"a CiliumNode deleted after its Node":                {"pod a 10.9.0.1; node a gone; cn a gone", nil},
		"a podCIDR of a deleted CiliumNode listed later":     {"cn a gone; cn a new; cn a list 172.16.0.0/24", []string{"3 cn a"}},
		"something of a block that overlaps an older one":    {"block 10.9.0.0/29 b; cn b publish 10.9.0.5, list 10.9.0.0/29", []string{"1 block 10.9.0.0-29", "1 cn b"}},
		"an older block than one that overlaps it":           {"block 10.9.0.4/30 b; block 10.9.0.0/29 a; cn b publish 10.9.0.5, list 10.9.0.4/30", nil},
		"a CiliumNode deleted by hand and put back":          {"cn a gone; cn a new, publish 172.16.0.1 10.9.0.1 10.9.0.2, list 172.16.0.0/24 10.9.0.0/30", nil},
		"an IP of a deleted one published without a block":   {"cn a gone; cn a new; block 10.9.0.0/30 gone; cn a publish 10.9.0.1", []string{"1 block 10.9.0.0-30", "1 cn a"}},
		"an IP by hand put back from before":                 {byHand + "cn a new, publish 172.16.0.1", nil},
		"by hand, in a later version":                        {byHand + "cn a new; cn a publish 172.16.0.1", []string{"1 cn a"}},
		"by hand, on another node":                           {byHand + "cn b gone; cn b new, publish 172.16.0.1", []string{"1 cn b"}},
		"by hand, with another IP":                           {byHand + "cn a new, publish 172.16.0.2", []string{"1 cn a"}},
		"by hand, with an IP that was of a block":            {byHand + "block 10.9.0.0/30 cool; block 10.9.0.0/30 gone; cn a new, publish 10.9.0.1", []string{"1 cn a"}},
		"by hand, under another Node":                        {byHand + "node a gone; node a new; cn a new, publish 172.16.0.1", []string{"1 cn a"}},
		"by hand, once another node has published it":        {byHand + "block 172.16.0.0/30 b; cn b publish 172.16.0.1, list 172.16.0.0/30; cn a new, publish 172.16.0.1", []string{"1 cn a", "1 cn a"}},
		"by hand, once a block of it has come and gone":      {byHand + "block 172.16.0.0/30 b; block 172.16.0.0/30 cool; block 172.16.0.0/30 gone; cn a new, publish 172.16.0.1", []string{"1 cn a"}},
		"a block with IPs is not listed":                     {grow + "cn a publish 10.9.0.5", []string{"3 cn a"}},
		"a block without IPs is listed":                      {grow + "cn a " + four, []string{"3 cn a"}},
		"a block made of published IPs, not listed at first": {grow + "block 172.16.0.0/30 a; cn a publish 10.9.0.5, " + four, nil},
		"a block made of published IPs, not listed later":    {grow + "block 172.16.0.0/30 a; cn a label; cn a publish 10.9.0.5, " + four, []string{"3 cn a"}},
		"blocks are aggregated":                              {grow + "cn a publish 10.9.0.5, list 172.16.0.0/24 10.9.0.0/29", []string{"3 cn a", "3 cn a", "3 cn a"}},
		"entries are reordered":                              {"cn a list 10.9.0.0/30 172.16.0.0/24", []string{"3 cn a"}},
		"a foreign pool entry removed":                       {"cn a unpublish 172.16.0.1", []string{"7 cn a"}},
		"a foreign podCIDR removed":                          {"cn a list 10.9.0.0/30", []string{"7 cn a"}},

		// A marked address of a family that the agent does not run leaves without an answer, even if
		// the agent still names it. Here it runs IPv6 only, and named 10.9.0.1 before.
		"family off: its router's address is left":             {v6 + "cn a use fd00::1 router" + stale, nil},
		"family off: its ingress address is left":              {"cn a own fd00::1, ingress 10.9.0.1; cn a use fd00::1 router" + stale, nil},
		"family off: the report names no router":               {v6 + "cn a use fd00::1 default/x" + stale, []string{"2 cn a", "2 cn a"}},
		"family off: there is no report":                       {v6[:len(v6)-2] + stale, []string{"2 cn a", "2 cn a"}},
		"family off: it reports another address of the family": {v6 + "cn a use fd00::1 router; cn a use 10.9.0.2 default/x" + stale, []string{"2 cn a", "2 cn a"}},
		"family off: it names a health endpoint of the family": {v6 + "cn a health 10.9.0.2; cn a use fd00::1 router" + stale, []string{"2 cn a", "2 cn a"}},
		"family off: a pod has it":                             {v6 + "cn a use fd00::1 router; pod a 10.9.0.1" + stale, []string{"2 cn a"}},

		// Only the agent's own addresses may retire, in a block that must leave, while the agent can
		// take others.
		"retired: the router's, of a deleted block":             {router + "block 10.9.0.0/30 drain Deleted; cn a release 10.9.0.1 released", nil},
		"retired: the health endpoint's, of a CIDR that drains": {"cn a health 10.9.0.1; block 10.9.0.0/30 drain CIDRDraining; cn a release 10.9.0.1 released", nil},
		"retired: of a node that its pool no longer selects":    {router + "block 10.9.0.0/30 drain NodeUnselected; cn a release 10.9.0.1 released", nil},
		"retired: decided on before the drain was undone":       {router + "block 10.9.0.0/30 drain PoolDeleted; block 10.9.0.0/30 serve; cn a release 10.9.0.1 released", nil},
		"retired: of a block in service":                        {router + "cn a release 10.9.0.1 released", []string{"2 cn a"}},
		"retired: of a block that is reclaimed":                 {router + "block 10.9.0.0/30 drain Reclaim; cn a release 10.9.0.1 released", []string{"2 cn a"}},
		"retired: a pod's, by the report":                       {"cn a use 10.9.0.1 default/x; block 10.9.0.0/30 drain Deleted; cn a release 10.9.0.1 released", []string{"2 cn a"}},
		"retired: a pod's, by its status":                       {router + "block 10.9.0.0/30 drain Deleted; pod a 10.9.0.1; cn a release 10.9.0.1 released", []string{"2 cn a"}},
		"retired: a free one":                                   {"block 10.9.0.0/30 drain Deleted; cn a release 10.9.0.1 released", []string{"2 cn a"}},
		"retired: while there is no other": {router + "cn a use 10.9.0.2 default/x; cn a use 172.16.0.1 default/y; block 10.9.0.0/30 drain Deleted; cn a release 10.9.0.1 released",
			[]string{"2 cn a"}},
		"retired: while there is one for two": {router + "cn a use 10.9.0.2 health; block 10.9.0.0/30 drain Deleted; cn a release 10.9.0.1 released; cn a release 10.9.0.2 released",
			[]string{"2 cn a"}},
	} {
		t.Run(name, func(t *testing.T) { judged(t, 0, test.plant, test.want...) })
	}
}

func TestCooldownIsMeasured(t *testing.T) {
	judged(t, time.Hour, "block 10.9.0.4/30 a; block 10.9.0.4/30 cool; block 10.9.0.4/30 gone", "1 block 10.9.0.4-30")
}

// judged checks the violations that a Judge finds in writes.
func judged(t *testing.T, cooldown time.Duration, plant string, want ...string) {
	t.Helper()
	j := &judging{judge: invariant.NewJudge(cooldown), stored: map[string]client.Object{}}
	write(t, j, begun)
	j.found = nil
	write(t, j, plant)
	if diff := cmp.Diff(want, briefly(j.found)); diff != "" {
		t.Errorf("violations (-want +got):\n%s\n%v", diff, j.found)
	}
}

// judging stores objects and passes each version to a Judge.
type judging struct {
	judge   *invariant.Judge
	stored  map[string]client.Object
	version int
	found   []invariant.Violation
}

func (j *judging) get(o client.Object) bool {
	stored, ok := j.stored[keyOf(o)]
	if ok {
		assign(o, stored.DeepCopyObject().(client.Object))
	}
	return ok
}

func (j *judging) put(o client.Object, _ bool) {
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprint("uid-", j.version)))
	}
	j.stored[keyOf(o)] = o
	j.step(o, o)
}

func (j *judging) remove(o client.Object) {
	delete(j.stored, keyOf(o))
	j.step(o, nil)
}

func (j *judging) step(o, now client.Object) {
	j.version++
	o.SetResourceVersion(fmt.Sprint(j.version))
	name := o.GetName()
	if pod, ok := o.(*corev1.Pod); ok {
		name = pod.Namespace + "/" + name
	}
	change := invariant.Change{Kind: kindOf(o), Name: name, Version: uint64(j.version), Received: time.Now(), New: now}
	j.found = slices.Concat(j.found, j.judge.Step(change))
}
