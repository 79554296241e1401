package protocol

// Guard is an act of the operator that keeps a rule, or makes progress.
type Guard uint8

// Guards of the rules.
const (
	ClaimByCreate Guard = iota
	PatchIsConditional
	ObserveBeforeClaim
	ReadBlockLive
	RemoveWhenAgreed
	RemoveWhenReported
	CoolWhenEmpty
	PhaseIsConditional
	WaitCooldown
	Fence
	FenceSinceCooling
	FenceOfVersion
	ReadNodeLive
	DeleteIsConditional
	// Guards of progress.
	DrainAgain
	FenceByMark
	AckTimeout
	ClearRefused
	Reclaim
	guards
)

// Protection describes a guard: its place, and the rule that breaks without it.
type Protection struct {
	Guard Guard
	Name  string
	// The act of the guard, and the function that performs it.
	What, Where string
	// Rule breaks without it. For guards of progress this is a goal.
	Rule Rule
	// Progress means that no rule breaks without it, but a goal can stay unmet.
	Progress bool
}

// Whole returns the rule or goal that breaks without the guard where agents are assigned whole
// blocks, or "": the guard belongs to the handshake. There a decision of any phase may let a block
// cool down, so no version of one is too old for PhaseIsConditional.
func (p Protection) Whole() (rule Rule, progress bool) {
	switch p.Guard {
	case RemoveWhenAgreed, RemoveWhenReported, AckTimeout, ClearRefused, Reclaim, PhaseIsConditional:
		return "", false
	case DrainAgain: // else the agent returns the block while it cools down
		return CooledDown, false
	}
	return p.Rule, p.Progress
}

// Protections returns all guards.
func Protections() []Protection {
	return []Protection{
		{ClaimByCreate, "claim-by-create", "a block is claimed by creating an object whose name follows from its CIDR", "claimOne", Claimed, false},
		{PatchIsConditional, "patch-conditional", "patches of a CiliumNode are bound to the version decided on", "patch", Conditional, false},
		{ObserveBeforeClaim, "observe-before-claim", "the patch that publishes a new block is bound to a version read before the block was created", "act", OnePool, false},
		{ReadBlockLive, "read-block-live", "a block that exists is read live, after its CiliumNode, before it is published again", "addVerified", OnePool, false},
		{RemoveWhenAgreed, "remove-when-agreed", "an address is removed when its agent has answered ready-for-release", "leave", Agreed, false},
		{RemoveWhenReported, "remove-when-reported", "an address is removed when its agent has reported what its pods use since it started", "leave", InUse, false},
		{PhaseIsConditional, "phase-conditional", "a block's condition is bound to the version decided on", "setPhase", Conditional, false},
		{WaitCooldown, "cooldown", "a block is deleted when its cooldown has passed", "deleteCooled", CooledDown, false},
		{Fence, "fence", "the leader that deletes a block has changed its CiliumNode before", "fence", OnePool, false},
		{FenceSinceCooling, "fence-since-cooling", "that change came after the block began to cool down", "wroteCiliumNode", OnePool, false},
		{FenceOfVersion, "fence-of-version", "that change counts for this cooldown, and not for an earlier one", "Fenced", OnePool, false},
		{ReadNodeLive, "read-ciliumnode-live", "the CiliumNode is read live before the block is deleted", "deleteBlock", Claimed, false},
		{DeleteIsConditional, "delete-conditional", "the deletion is bound to UID and version of the block", "deleteBlock", Claimed, false},
		{CoolWhenEmpty, "cool-when-empty", "a block cools down when nothing of it is published", "cools", Settled, true},
		{DrainAgain, "drain-again", "a block that cools down and is published drains again", "drainAgain", "drain", true},
		{FenceByMark, "fence-by-mark", "where no entry is left to delete, one is written to change the version", "BumpVersion", "drain", true},
		{AckTimeout, "ack-timeout", "a mark without an answer is deleted and set again", "leave", "drain", true},
		{ClearRefused, "clear-refused", "a refusal is deleted, so that the address can be marked again", "leave", "drain", true},
		{Reclaim, "reclaim", "blocks that a node does not need drain", "reclaim", "demand", true},
	}
}
