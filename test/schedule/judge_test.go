package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// story builds a history with a change each second.
type story []change

func (s *story) add(c change) {
	c.version = uint64(len(*s) + 1)
	c.at = time.Duration(c.version) * time.Second
	*s = append(*s, c)
}

func (s *story) node(name string, offer int) {
	s.add(change{name: name, node: &nodeSeen{zone: "east", offer: offer}})
}

// has sets the addresses of a node: free ones, then those that leave.
func (s *story) has(name string, free, leaving int) {
	seen := &addressesSeen{}
	for i := range free + leaving {
		if i < free {
			seen.free = append(seen.free, addr(i))
		} else {
			seen.leaving = append(seen.leaving, addr(i))
		}
	}
	s.add(change{name: name, addresses: seen})
}

func addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}) }

func (s *story) pending(name string) { s.add(change{name: name, pod: &podSeen{requests: 1}}) }

func (s *story) bound(name, node string) {
	s.add(change{name: name, pod: &podSeen{requests: 1, node: node}})
}

func (s *story) runs(name, node string, address int) {
	s.add(change{name: name, pod: &podSeen{requests: 1, node: node, running: true, address: addr(address)}})
}

func (s *story) gone(name, node string) {
	s.add(change{name: name, gone: true, pod: &podSeen{requests: 1, node: node}})
}

func (s *story) block(name, cidr string, gone bool) {
	s.add(change{name: name, gone: gone, block: &blockSeen{cidr: netip.MustParsePrefix(cidr)}})
}

func (s *story) pool(cidr string) {
	s.add(change{name: "east", pool: &poolSeen{zone: "east", blockBits: 27, cidrs: []netip.Prefix{netip.MustParsePrefix(cidr)}}})
}

func (s *story) pass(d time.Duration) {
	for range int(d / time.Second) {
		s.node("elsewhere", 0)
	}
}

const testBound = 20 * time.Second

func TestJudge(t *testing.T) {
	tests := map[string]struct {
		tell func(*story)
		want map[string]int
	}{
		"nothing": {tell: func(*story) {}},
		"a pod for each address": {tell: func(s *story) {
			s.has("a", 2, 0)
			s.node("a", 2)
			s.bound("p", "a")
			s.bound("q", "a")
		}},
		"one pod more": {tell: func(s *story) {
			s.has("a", 1, 0)
			s.node("a", 1)
			s.bound("p", "a")
			s.bound("q", "a")
		}, want: map[string]int{wrongBind: 1}},
		"one after another": {tell: func(s *story) {
			s.has("a", 1, 0)
			s.node("a", 1)
			s.bound("p", "a")
			s.gone("p", "a")
			s.bound("q", "a")
		}},
		"one after another has completed": {tell: func(s *story) {
			s.has("a", 1, 0)
			s.node("a", 1)
			s.bound("p", "a")
			s.add(change{name: "p", pod: &podSeen{requests: 1, node: "a", ended: true}})
			s.bound("q", "a")
		}},
		"while another is being deleted": {tell: func(s *story) {
			s.has("a", 1, 0)
			s.node("a", 1)
			s.bound("p", "a")
			s.add(change{name: "p", pod: &podSeen{requests: 1, node: "a", leaving: true}})
			s.bound("q", "a")
		}, want: map[string]int{wrongBind: 1}},
		"no CiliumNode": {tell: func(s *story) {
			s.node("a", 1)
			s.bound("p", "a")
		}, want: map[string]int{wrongBind: 1}},
		"the CiliumNode is gone": {tell: func(s *story) {
			s.has("a", 1, 0)
			s.add(change{name: "a", gone: true, addresses: &addressesSeen{}})
			s.bound("p", "a")
		}, want: map[string]int{wrongBind: 1}},
		"the only address is marked": {tell: func(s *story) {
			s.has("a", 0, 1)
			s.node("a", 0)
			s.bound("p", "a")
		}, want: map[string]int{wrongBind: 1}},
		"a marked address is a pod's": {tell: func(s *story) {
			s.has("a", 2, 0)
			s.node("a", 2)
			s.bound("p", "a")
			s.runs("p", "a", 1)
			s.has("a", 1, 1)
			s.bound("q", "a")
		}},
		"an offer above what there is": {tell: func(s *story) {
			s.has("a", 3, 0)
			s.node("a", 4)
		}, want: map[string]int{overOffer: 1}},
		"a mark under an offer": {tell: func(s *story) {
			s.has("a", 3, 0)
			s.node("a", 3)
			s.has("a", 2, 1)
		}, want: map[string]int{overOffer: 1}},
		"an offer of what pods request": {tell: func(s *story) {
			s.has("a", 2, 0)
			s.node("a", 2)
			s.bound("p", "a")
			s.bound("q", "a")
			s.node("a", 2)
			s.has("a", 1, 1)
		}},
		"pending while a node has an address": {tell: func(s *story) {
			s.has("a", 1, 0)
			s.node("a", 1)
			s.pending("p")
			s.pass(testBound + time.Second)
			s.bound("p", "a")
		}, want: map[string]int{waited: 1}},
		"pending to the end": {tell: func(s *story) {
			s.has("a", 1, 0)
			s.node("a", 1)
			s.pending("p")
			s.pass(testBound + time.Second)
		}, want: map[string]int{waited: 1}},
		"pending while all are taken": {tell: func(s *story) {
			s.has("a", 1, 0)
			s.node("a", 1)
			s.bound("p", "a")
			s.pending("q")
			s.pass(2 * testBound)
			s.gone("p", "a")
			s.bound("q", "a")
		}},
		"pending while addresses are taken in between": {tell: func(s *story) {
			s.has("a", 1, 0)
			s.node("a", 1)
			s.pending("p")
			s.pass(testBound - 5*time.Second)
			s.bound("q", "a")
			s.gone("q", "a")
			s.pass(testBound - 5*time.Second)
			s.bound("p", "a")
		}},
		"pending while another zone has an address": {tell: func(s *story) {
			s.has("a", 1, 0)
			s.node("a", 1)
			s.add(change{name: "p", pod: &podSeen{requests: 1, zone: "west"}})
			s.pass(2 * testBound)
		}},
		"pending while a cordoned node has an address": {tell: func(s *story) {
			s.has("a", 1, 0)
			s.add(change{name: "a", node: &nodeSeen{zone: "east", offer: 1, cordoned: true}})
			s.pending("p")
			s.pass(2 * testBound)
		}},
		"pending while the node that had an address is gone": {tell: func(s *story) {
			s.has("a", 1, 0)
			s.node("a", 1)
			s.pending("p")
			s.add(change{name: "a", gone: true, node: &nodeSeen{zone: "east", offer: 1}})
			s.pass(2 * testBound)
		}},
		"pending while the node has moved to another zone": {tell: func(s *story) {
			s.has("a", 1, 0)
			s.node("a", 1)
			s.add(change{name: "p", pod: &podSeen{requests: 1, zone: "east"}})
			s.add(change{name: "a", node: &nodeSeen{zone: "west", offer: 1}})
			s.pass(2 * testBound)
		}},
		"pending while a node can get a block": {tell: func(s *story) {
			s.node("a", 0)
			s.pool("10.0.0.0/26")
			s.block("b", "10.0.0.0/27", false)
			s.pending("p")
			s.pass(testBound + time.Second)
		}, want: map[string]int{waited: 1}},
		"pending while no block is free": {tell: func(s *story) {
			s.node("a", 0)
			s.pool("10.0.0.0/27")
			s.block("b", "10.0.0.0/27", false)
			s.pending("p")
			s.pass(2 * testBound)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var s story
			test.tell(&s)
			if test.want == nil {
				test.want = map[string]int{}
			}
			// Watches deliver changes in any order.
			shuffled := slices.Clone(s)
			rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			v := judge(shuffled, testBound)
			if diff := cmp.Diff(test.want, v.counts); diff != "" {
				t.Errorf("findings (-want +got):\n%s%v", diff, v.findings)
			}
		})
	}
}

// Pods that request nothing are counted separately, and are not findings.
func TestJudgePlainPods(t *testing.T) {
	var s story
	s.has("a", 1, 0)
	for i := range 3 {
		s.add(change{name: fmt.Sprintf("p%d", i), pod: &podSeen{node: "a"}})
	}
	v := judge(s, testBound)
	if v.plain.bound != 3 || v.plain.wrong != 2 || v.requesting.bound != 0 || len(v.findings) != 0 {
		t.Errorf("plain %+v, requesting %+v, found %v", v.plain, v.requesting, v.findings)
	}
}

// A pod's wait counts from the time at which an address became available.
func TestWaitBegins(t *testing.T) {
	var s story
	s.has("a", 1, 0)
	s.pending("p") // at 2 s
	s.pass(5 * time.Second)
	s.node("a", 1) // at 8 s
	s.pass(3 * time.Second)
	s.bound("p", "a") // at 12 s
	v := judge(s, testBound)
	if v.longestWait != 4*time.Second || v.longestPending != 10*time.Second {
		t.Errorf("waited %s, was pending for %s", v.longestWait, v.longestPending)
	}
}

// Pods bound within a second are counted by seconds of the run.
func TestMostBinds(t *testing.T) {
	var b binds
	for _, at := range []time.Duration{100, 900, 1000, 1100, 1999, 2000, 2001} {
		b.bind(at * time.Millisecond)
	}
	if b.bound != 7 || b.most != 3 {
		t.Errorf("%d pods, %d within a second", b.bound, b.most)
	}
}

// A gap begins when the last address is taken, or with the pod, and ends when a pod that has
// waited through it is bound.
func TestGaps(t *testing.T) {
	var s story
	s.pool("10.0.0.0/26")
	s.block("b", "10.0.0.0/27", false)
	s.node("a", 1)
	s.has("a", 3, 0)
	s.bound("p", "a") // at 5 s: the last address
	s.pending("q")    // at 6 s
	s.node("a", 3)    // at 7 s
	s.pending("new")
	s.bound("new", "a") // has not waited
	s.bound("q", "a")   // at 10 s
	s.pass(3 * time.Second)
	s.node("a", 4)
	s.bound("late", "a") // no pod was pending
	v := judge(s, testBound)
	if diff := cmp.Diff([]time.Duration{4 * time.Second}, v.gaps); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
