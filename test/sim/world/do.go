package world

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// staleBy is how many versions of a kind a stale list may lack at most.
const staleBy = 5

func controllerOf(what string) int {
	for c := range controllers {
		if name := controllerName(c); len(what) > len(name) && what[:len(name)+1] == name+"/" {
			return c
		}
	}
	panic("no such controller: " + what)
}

// writing returns how many writes the process is about to send.
func (o *Operator) writing() int {
	n := 0
	for _, f := range o.flights {
		if f.pending.writes() {
			n++
		}
	}
	return n
}

// carryOut performs a call to the API server on behalf of the operator.
func (o *Operator) carryOut(c *call) error {
	if c.writes() {
		o.w.quiescence.sent++
		o.w.Counts.Ops["write "+c.kind.String()]++
		if !c.conditional {
			o.w.violate(4, "%s: %s is not conditional", o.name, c)
			if o.w.refinement != nil {
				o.w.refinement.unbound(c)
			}
		}
		o.holdOwnWrite(c)
	}
	o.w.rules.writer = o
	err := c.do()
	o.w.rules.writer = nil
	if err == nil {
		o.noteHeard(c)
	}
	o.takeAnswer(c, err)
	if err != nil {
		o.w.tracef("%s %s: %v", o.name, c, err)
		o.w.Counts.Ops["answered "+reasonOf(err)]++
		if c.writes() && o.w.processes.lease.holder != o && apierrors.IsConflict(err) {
			o.w.Counts.Faults["old write refused"]++
		}
	}
	return err
}

// takeAnswer records what a response tells the reconcile in progress.
func (o *Operator) takeAnswer(c *call, err error) {
	if o.w.refinement != nil && c.verb == "get" && err == nil {
		o.w.refinement.reads(o, o.current, c)
	}
	if c.looks() && err == nil {
		o.current.look(o, c.key)
	}
	if c.verb == "create" && c.kind == KindBlock && apierrors.IsAlreadyExists(err) {
		o.current.found = c.key
	}
	if c.verb == "get" && c.kind == KindCiliumNode && c.key == o.current.name {
		o.current.foundNone = apierrors.IsNotFound(err)
	}
}
