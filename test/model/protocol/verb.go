package protocol

import (
	"fmt"
	"strings"
)

// Verb is the kind of a step.
type Verb uint8

// Steps of leaders.
const (
	Claims Verb = iota
	ReadsBlock
	Publishes
	Drains
	TakesBack
	Marks
	Clears
	DecidesRemoval
	Removes
	CoolsDown
	Fences
	ReadsNode
	Deletes
)

// Steps of time and agents.
const (
	CooldownPasses Verb = iota + Deletes + 1
	Allocates
	Reports
	RefusesLate
	AgentStarts
	AgentRestores
	RestoresAll
	Returns
)

// Steps that may happen but need not.
const (
	AgentCrashes Verb = iota + Returns + 1
	Dies
	AgentForgets
	PodCame
	PodGoes
	PersonDeletes
	verbs
)

// chance reports whether it need not happen.
func (v Verb) chance() bool { return v >= AgentCrashes }

func (v Verb) String() string {
	return [verbs]string{
		Claims: "claims", ReadsBlock: "reads block", Publishes: "publishes", Drains: "drains", TakesBack: "takes back",
		Marks: "marks", Clears: "clears", DecidesRemoval: "decides removal", Removes: "removes",
		CoolsDown: "cools down", Fences: "fences", ReadsNode: "reads node", Deletes: "deletes",
		CooldownPasses: "cooldown passes", Allocates: "allocates", Reports: "reports", RefusesLate: "refuses late", AgentStarts: "agent starts", AgentRestores: "agent restores", RestoresAll: "restores all",
		Returns:      "returns",
		AgentCrashes: "agent crashes", Dies: "dies", AgentForgets: "agent forgets", PodCame: "pod came", PodGoes: "pod goes", PersonDeletes: "person deletes",
	}[v]
}

// String describes an action in a sentence.
func (a Action) String() string {
	sentence := [verbs]string{
		Claims:         "$leader creates $block for $node, and has the patch that publishes it in hand",
		ReadsBlock:     "$leader reads $block live: $node holds it, in service; it has the patch that publishes it in hand",
		Publishes:      "$leader publishes $block on $node",
		Drains:         "a leader sets $block to Draining",
		TakesBack:      "a leader returns $block to service",
		Marks:          "$leader marks $address on $node for release",
		Clears:         "$leader deletes the release entry of $address on $node",
		DecidesRemoval: "$leader decides to remove $address from the pool of $node",
		Removes:        "$leader removes $address from the pool of $node",
		CoolsDown:      "a leader sets $block to CoolingDown",
		Fences:         "$leader changes the version of the CiliumNode of $node, as $block cools down",
		ReadsNode:      "$leader reads the CiliumNode of $node live: nothing of $block is left there",
		Deletes:        "$leader deletes $block",
		CooldownPasses: "the cooldown of $block passes",
		Allocates:      "the agent of $node gives $address to a pod",
		Reports:        "the agent of $node reports, and answers its marks",
		RefusesLate:    "the agent of $node reports, and refuses to release $address, which a pod has just had",
		AgentStarts:    "the agent of $node starts",
		AgentRestores:  "the agent of $node restores its pods",
		RestoresAll:    "the agent of $node restores its pods, before it has seen any new mark",
		Returns:        "the agent of $node returns $block, which no pod uses",
		AgentCrashes:   "the agent of $node crashes",
		Dies:           "$leader dies, and another process takes its place",
		AgentForgets:   "a change of labels on the CiliumNode of $node makes its agent forget its answers",
		PodCame:        "a pod is bound to $node",
		PodGoes:        "the pod that has $address on $node goes",
		PersonDeletes:  "a person deletes $block",
	}[a.Verb]
	return strings.NewReplacer(
		"$leader", fmt.Sprintf("leader %d", a.Leader+1), "$node", "node "+nodeName(a.Node),
		"$block", "block "+blockName(a.Block), "$address", fmt.Sprintf("address %s.%d", blockName(a.Block), a.Address+1),
	).Replace(sentence)
}

func nodeName(n int) string { return string(rune('A' + n)) }

func blockName(b int) string { return fmt.Sprint(b + 1) }
