// Package plugin is kubectl cilium-pool: the root command, check and version. Each
// other family of commands has a package of its own, and they share cli, cluster and
// output.
//
// Commands have no logic of their own about addresses: held, free and due blocks follow from
// pkg/state and pkg/expand, on a snapshot read by pkg/audit/clusterread.
//
// drain changes pools and deletes blocks. migrate makes, labels and deletes blocks, annotates
// Nodes, and changes CiliumNodes of nodes that take up or leave an IPAM mode. No other command
// writes, and none writes a block's status.
package plugin
