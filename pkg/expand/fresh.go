package expand

import "net/netip"

// Uses reports whether something says that an address of a CIDR is in use, or a person
// gave one to a pod.
func (s *State) Uses(cidr netip.Prefix) bool {
	for a := range s.Used {
		if cidr.Contains(a) {
			return true
		}
	}
	for a, owner := range s.Pool {
		if owner != "" && cidr.Contains(a) {
			return true
		}
	}
	for _, a := range s.Own {
		if cidr.Contains(a) {
			return true
		}
	}
	for _, pod := range s.Pods {
		for _, a := range pod.IPs {
			if cidr.Contains(a) {
				return true
			}
		}
	}
	return false
}

// MayLeave reports whether an unused block, leaving because its node moved to another
// pool, may proceed: the agent has not reported yet, or every address of the block was
// marked before the agent started.
func (s *State) MayLeave(cidr netip.Prefix) bool {
	reported := false
	for a := range s.Used {
		reported = reported || a.Is4() == cidr.Addr().Is4()
	}
	if !reported {
		return true
	}
	for a := range s.Pool {
		if _, stands := s.Release[a]; cidr.Contains(a) && !stands {
			return false
		}
	}
	return true
}
