package world

import "time"

// clock is the true time. Timers and the Lease depend on it.
type clock struct {
	*World
	now time.Time
}

func (c *clock) enableTime() {
	if next := c.next(); !next.IsZero() && next.Before(c.now.Add(aDay)) {
		c.can(Pass, "time", "next")
	}
	for _, d := range []string{"1s", "15s", "1m"} {
		c.can(Pass, "time", d)
	}
	if c.cfg.Faults.Has(Jump) {
		c.can(JumpFar, "time", "20s")
		c.can(JumpFar, "time", "15m")
	}
}

func (c *clock) doTime(a Action) {
	if a.Verb == JumpFar {
		c.workload.kubeletsWrite(duration(a.What))
		c.now = c.now.Add(duration(a.What)) // no lease is renewed meanwhile
		return
	}
	d := c.next().Sub(c.now)
	if a.What != "next" {
		d = duration(a.What)
	}
	c.workload.kubeletsWrite(d)
	c.pass(d)
}

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

// pass lets time pass: running leaders renew their lease, and processes that have lost it exit.
func (c *clock) pass(d time.Duration) {
	c.now = c.now.Add(d)
	for _, o := range c.operators {
		switch {
		case !o.running() || !o.leads:
		case c.processes.lease.holder == o:
			c.processes.lease.renewed = c.now
		default:
			o.crash()
		}
	}
	c.etcd.agentsRewrite()
	c.etcd.look()
	for _, o := range c.operators {
		if o.running() {
			for _, q := range o.queues {
				q.due()
			}
		}
	}
}

// next returns when something comes due by time alone, or zero.
func (c *clock) next() time.Time {
	var first time.Time
	at := func(t time.Time) {
		if t.After(c.now) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for _, o := range c.operators {
		if o.running() {
			o.dues(at)
		}
	}
	for _, m := range c.machines {
		m.dues(c.cfg.UpdateRate, at)
		m.nodeAgent.dues(at)
		for _, slot := range c.workload.slots {
			if t, ok := c.workload.refused[m.kubelet.podKey(slot)]; ok {
				at(t.Add(addRetry))
			}
		}
	}
	if c.migration.mover.busy() && c.migration.mover.pending.verb == "sleep" {
		at(c.migration.mover.woken)
	}
	if h := c.processes.lease.holder; h != nil && (!h.running() || !h.leads) {
		at(c.processes.lease.renewed.Add(leaseFor))
	}
	return first
}

// dues reports when something about the agent comes due by time alone.
func (m *machine) dues(rate time.Duration, at func(time.Time)) {
	if m.phase == down {
		at(m.again)
	}
	if m.reads() && m.asked && !m.silent {
		at(m.wrote.Add(rate))
	}
	for _, since := range m.waits {
		at(since.Add(patience))
	}
}

// dues reports when something about the operator comes due by time alone.
func (o *Operator) dues(at func(time.Time)) {
	for _, q := range o.queues {
		at(q.next())
	}
	for _, f := range o.flights {
		if f.pending.verb == "wait" {
			at(f.since.Add(shownWithin))
		}
	}
}
