package expand

import "time"

// Room is what a node can offer to pods that are yet to be scheduled, in one family.
type Room struct {
	// Free is how many addresses the Node offers, or is about to, beyond what its bound
	// pods request. Below 0: these request more.
	Free int
	// Back is how many addresses it can take back of blocks that leave. A caller may add
	// those of blocks that are being claimed.
	Back int
	// Blocks is how many blocks it may claim, and Addresses how many of their addresses
	// it may publish, by its own limits.
	Blocks, Addresses int
}

// RoomOf returns the room of a node, whatever s.Expected is.
func RoomOf(now time.Time, p Policy, s State) Room {
	s.Expected, s.Limits.MaxAboveWatermark = 0, 0 // the latter follows the target
	d := newDecision(now, p, &s, Memory{})
	d.countDemand()
	d.classify()
	d.setTarget()
	published := d.openCapacity()
	free := d.offerRoom(published)
	d.fillBlocks()
	d.readmit()
	if s.NotRun {
		return Room{}
	}
	room := Room{Free: free + d.plan.Capacity - published, Blocks: max(0, p.MaxBlocks-d.servingBlocks())}
	for i := range d.blocks {
		if b := &d.blocks[i]; b.mayReturn() && room.Blocks > 0 {
			room.Back += len(b.Usable)
			room.Blocks--
		}
	}
	room.Addresses = d.room()
	return room
}

// openCapacity is how many published addresses of blocks in service, or of no block,
// pods can have.
func (d *decision) openCapacity() int {
	n := d.foreign
	for i := range d.blocks {
		if b := &d.blocks[i]; b.serving() {
			n += b.open
		}
	}
	return n
}

// offerRoom is how many of the published addresses the Node offers beyond what its bound
// pods request. Until the agent has reported, nothing is offered, so it is what will be.
func (d *decision) offerRoom(published int) int {
	if !d.reported {
		return published - d.plan.Demand - max(0, agentFloor-d.own)
	}
	return d.offerable(d.requestUse(&Plan{}), &Plan{}) - d.requested()
}

// requested is what all bound pods request.
func (d *decision) requested() int {
	n := 0
	for i := range d.state.Pods {
		n += int(d.state.Pods[i].Requests[d.state.Family])
	}
	return n
}

// expectPods raises the target until the Node can offer what pods request that are yet to
// be scheduled there. These may have the reserve: it follows once they are bound.
func (d *decision) expectPods() {
	if d.state.Expected <= 0 || d.state.NotRun {
		return
	}
	published := d.openCapacity()
	expected := published - d.offerRoom(published) + limit(d.state.Expected)
	d.unreserved, d.target = max(d.unreserved, expected), max(d.target, expected)
}
