package truth

import (
	"net/netip"
	"testing"
)

// Facts about agents that an operator must know, each shown on Cilium's own agent and on the light
// one.

var smallPool = map[string]string{"10.0.0.1": "", "10.0.0.2": "", "fd00::1": "", "fd00::2": ""}

func (p *pair) wantRelease(ip, want string) {
	p.t.Helper()
	p.rest()
	if got := string(p.get(p.realNode()).Status.IPAM.ReleaseIPs[ip]); got != want {
		p.t.Errorf("Cilium's says %q of %s, want %q", got, ip, want)
	}
}

func (p *pair) wantUsed(want int) {
	p.t.Helper()
	if got := p.get(p.realNode()).Status.IPAM.Used; len(got) != want {
		p.t.Errorf("Cilium's reports %v, want %d addresses", got, want)
	}
}

// An agent that is starting acks the address of a pod it has not restored, reports no address in
// use, and then drops the pod.
func TestAckBeforeRestore(t *testing.T) {
	t.Parallel()
	p := newPair(t, shared.Cluster(t))
	p.create(smallPool)
	p.start()
	p.open()
	p.restored()
	pod := netip.MustParseAddr("10.0.0.1")
	p.allocate(pod, "default/a")
	p.rest()
	p.wantUsed(1)

	p.crash()
	p.start()
	p.open()
	p.patch(true, `{"status":{"ipam":{"release-ips":{"10.0.0.1":"marked-for-release"}}}}`)
	p.wantRelease("10.0.0.1", "ready-for-release")
	p.wantUsed(0)
	if p.restore(pod, "default/a [restored]") {
		t.Error("Cilium's restores an address that it has acked")
	}
}

// An agent does not answer a mark that exists when it starts until the CiliumNode changes
// again.
func TestMarkBeforeStart(t *testing.T) {
	t.Parallel()
	p := newPair(t, shared.Cluster(t))
	p.create(smallPool)
	p.patch(true, `{"status":{"ipam":{"release-ips":{"10.0.0.1":"marked-for-release"}}}}`)
	p.start()
	p.open()
	p.restored()
	p.wantRelease("10.0.0.1", "marked-for-release")
	p.patch(false, `{"metadata":{"labels":{"a":"b"}}}`)
	p.wantRelease("10.0.0.1", "marked-for-release")
	p.patch(false, `{"spec":{"ipam":{"pool":{"10.0.0.3":{}}}}}`)
	p.wantRelease("10.0.0.1", "ready-for-release")
}

// An agent that still waits for its pool refuses addresses that are not in it, and thereby reports
// no address in use.
func TestWaitingAgentReportsNothingUsed(t *testing.T) {
	t.Parallel()
	p := newPair(t, shared.Cluster(t))
	p.create(map[string]string{})
	p.patch(true, `{"status":{"ipam":{"used":{"10.0.0.1":{"owner":"default/a"}}}}}`)
	p.start()
	p.settle()
	p.wantUsed(1)
	p.patch(true, `{"status":{"ipam":{"release-ips":{"10.0.0.1":"marked-for-release"}}}}`)
	p.wantRelease("10.0.0.1", "do-not-release")
	p.wantUsed(0)
}

// If a change of metadata crosses an answer, the agent forgets the answer.
func TestMetadataCrossesAnswer(t *testing.T) {
	t.Parallel()
	p := newPair(t, shared.Cluster(t))
	p.create(smallPool)
	p.start()
	p.open()
	p.restored()
	p.rest()
	p.setGate("block")
	p.patch(true, `{"status":{"ipam":{"release-ips":{"10.0.0.1":"marked-for-release"}}}}`)
	p.settle()
	p.patch(false, `{"metadata":{"labels":{"a":"b"}}}`)
	p.settle()
	p.setGate("open")
	p.wantRelease("10.0.0.1", "marked-for-release")
}
