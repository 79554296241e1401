package config

import (
	"net/netip"
	"time"
)

// Messages of the lines in the operator's log that tell who holds an address. Log stores and whois --at read
// these lines, so messages and keys stay as they are: docs/operations.md has the table.
const (
	BlockClaimed    = "claimed"
	BlockReturned   = "returned"
	BlockFreed      = "freed"
	AddressKept     = "keeping an address for an owner"
	AddressReleased = "releasing the address of an owner"
)

// HolderLine is such a line. Fields without a meaning for its message are zero.
type HolderLine struct {
	Time    time.Time `json:"ts"`
	Message string    `json:"msg"`

	Block  netip.Prefix `json:"block"`
	Node   string       `json:"node"`
	Pool   string       `json:"pool"`
	Reason string       `json:"reason"`
	// Since is the creation of the block; zero for BlockClaimed. Until is the time of BlockReturned, in the line BlockFreed.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`

	Address netip.Addr `json:"address"`
	// Owner alone gets the address, or addresses of the block: the pods of one name, as namespace/name, or with one
	// value of a label, as namespace/key=value.
	Owner string `json:"owner"`
}

// KeysAndValues are the fields of the line, except its time and message, for a logr.Logger.
func (l *HolderLine) KeysAndValues() []any {
	var fields []any
	if l.Block.IsValid() {
		fields = append(fields, "block", l.Block.String(), "node", l.Node, "pool", l.Pool, "reason", l.Reason)
	}
	if l.Message == BlockReturned || l.Message == BlockFreed {
		fields = append(fields, "since", l.Since.UTC())
	}
	if l.Message == BlockFreed {
		fields = append(fields, "until", l.Until.UTC())
	}
	if l.Address.IsValid() {
		fields = append(fields, "address", l.Address.String())
	}
	if l.Owner != "" {
		fields = append(fields, "owner", l.Owner)
	}
	return fields
}
