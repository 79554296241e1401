package agent

import (
	"net/netip"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
)

// answer answers the release handshake and requests a status write if an answer changed
// (updateLocalNodeResource, crd.go:400-487).
func (s *Store) answer() {
	if s.own.Spec.IPAM.Pool == nil { // crd.go:403
		return
	}
	release := s.own.Status.IPAM.ReleaseIPs
	said := false
	for ip, status := range release {
		answer := s.answerOne(ip, status)
		if answer == status {
			continue
		}
		said = true
		if answer == "" {
			delete(release, ip)
		} else {
			release[ip] = answer
		}
	}
	if said {
		s.opts.Trigger("excess IP release")
	}
}

// answerOne returns the new entry of ip: status itself if it does not change, "" to delete it.
func (s *Store) answerOne(ip string, status ipamtypes.IPReleaseStatus) ipamtypes.IPReleaseStatus {
	if _, ok := s.own.Spec.IPAM.Pool[ip]; !ok {
		switch status {
		case ipamoption.IPAMReleased: // crd.go:411
			return ""
		case ipamoption.IPAMMarkForRelease: // crd.go:436
			return ipamoption.IPAMDoNotRelease
		}
		return status
	}
	if status != ipamoption.IPAMMarkForRelease { // crd.go:446
		return status
	}
	addr, err := netip.ParseAddr(ip)
	if err != nil { // crd.go:455
		return status
	}
	allocated, ok := s.allocators[familyOf(addr)]
	if !ok { // crd.go:463: not open yet, or the family is off
		return status
	}
	// An agent that is open and has not restored its pods says "ready" for
	// addresses that they use.
	if _, used := allocated[ip]; used { // crd.go:472
		return ipamoption.IPAMDoNotRelease
	}
	return ipamoption.IPAMReadyForRelease
}

// releasing is isIPInReleaseHandshake (crd.go:573).
func (s *Store) releasing(ip string) bool {
	switch s.own.Status.IPAM.ReleaseIPs[ip] {
	case ipamoption.IPAMMarkForRelease, ipamoption.IPAMReadyForRelease, ipamoption.IPAMReleased:
		return true
	}
	return false
}
