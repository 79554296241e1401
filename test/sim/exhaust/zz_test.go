package main
import ("testing";"fmt")
func TestZZ(t *testing.T) { for _, f := range []string{"world.flight.seen","controller.NodeReconciler.memory","controller.Ledger.unsure","controller.Ledger.nodes","world.machine.router","agent.Store.own", "world.World.lease","world.flight.pending","world.machine.wrote","controller.NodeReconciler.losses"} { for _, s := range []string{"grow","release","lag","drain"} {
 k := newWalks(t,s,f); b := k.hold(100,14); fmt.Println(f,s,b!="",k.pairs); if b!="" {break} } } }
