package main

import (
	"log/slog"
	"testing/synctest"
	"time"

	"github.com/cilium/cilium/pkg/ipam"
	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	"github.com/cilium/cilium/pkg/ipam/podippool"
	"github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"github.com/cilium/cilium/pkg/node"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/statedb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/truth/wire"
)

// poolAgent is a node in multi-pool mode.
type poolAgent struct {
	store *nodeStore
	db    *statedb.DB
	known statedb.RWTable[podippool.LocalPodIPPool]

	// Fields of this run of the agent; nil if it is down.
	ipam  *ipam.IPAM
	ready chan struct{}
	stop  func() error
}

func newPoolAgent() (*poolAgent, error) {
	db := statedb.New()
	known, err := podippool.NewTable(db)
	return &poolAgent{store: &nodeStore{}, db: db, known: known}, err
}

func (a *poolAgent) do(req wire.Request) (known bool, err error) {
	switch req.Do {
	case "put":
		a.store.locked(func(s *wire.Store) { s.Put(req.Node) })
	case "delete":
		a.store.locked((*wire.Store).Delete)
	case "refuse":
		a.store.locked(func(s *wire.Store) { s.Refuse = req.Refuse })
	case "see":
		a.store.see(req.Last)
	case "see-again":
		a.store.seeAgain()
	case "sync":
		a.store.sync()
	case "know":
		a.know(req.Pool, req.Known)
	case "start":
		err = a.start(req)
	case "crash":
		a.ipam = nil
		err = a.stop()
	case "pass":
		time.Sleep(req.For)
	default:
		return false, nil
	}
	return true, err
}

func (a *poolAgent) allocators(bool) *ipam.IPAM {
	if a.ipam == nil {
		return nil
	}
	return once(a.ready, a.ipam)
}

// tell waits until all goroutines wait.
func (a *poolAgent) tell(resp *wire.Response) {
	synctest.Wait()
	a.store.locked(func(s *wire.Store) { resp.Node = s.Node.DeepCopy() })
}

// start starts the agent's IPAM. ConfigureAllocator returns once it has its pools.
func (a *poolAgent) start(req wire.Request) error {
	group, stop, err := jobs()
	if err != nil {
		return err
	}
	option.Config.IPAMDefaultIPPool = defaultPool
	a.store.restart()
	a.stop, a.ready = stop, make(chan struct{})
	a.ipam = ipam.NewIPAM(ipam.NewIPAMParams{
		Logger: slog.New(slog.DiscardHandler),
		AgentConfig: &option.DaemonConfig{
			EnableIPv4:                 true,
			EnableIPv6:                 req.IPv6,
			IPAM:                       ipamoption.IPAMMultiPool,
			IPAMCiliumNodeUpdateRate:   req.Rate,
			IPAMMultiPoolPreAllocation: req.Reserve,
		},
		LocalNodeStore: node.NewTestLocalNodeStore(node.LocalNode{}),
		NodeResource:   a.store,
		Clientset:      storeClient{store: a.store},
		Metadata:       onePool{},
		JobGroup:       group,
		DB:             a.db,
		PodIPPools:     a.known,
	})
	go func(agent *ipam.IPAM, ready chan struct{}) {
		agent.ConfigureAllocator()
		close(ready)
	}(a.ipam, a.ready)
	return nil
}

// know creates or deletes a CiliumPodIPPool, as the agent sees it.
func (a *poolAgent) know(pool string, known bool) {
	txn := a.db.WriteTxn(a.known)
	defer txn.Commit()
	obj := podippool.LocalPodIPPool{CiliumPodIPPool: &v2alpha1.CiliumPodIPPool{ObjectMeta: metav1.ObjectMeta{Name: pool}}}
	if known {
		a.known.Insert(txn, obj)
	} else {
		a.known.Delete(txn, obj)
	}
}
