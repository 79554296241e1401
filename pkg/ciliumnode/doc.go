// Package ciliumnode is the only code that reads or writes CiliumNodes. It turns them
// into plain values, and decisions into the smallest conditional patch.
//
// It writes spec.ipam.pool and spec.ipam.podCIDRs, or spec.ipam.pools.allocated, depending on the
// mode, and status.ipam.release-ips, and no other field of an existing CiliumNode. Labels,
// annotations, owner references and addresses belong to the agent, which rewrites them.
package ciliumnode
