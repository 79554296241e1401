package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"testing/synctest"
	"time"

	"github.com/cilium/cilium/pkg/ipam"
	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	"github.com/cilium/cilium/pkg/ipam/podippool"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"github.com/cilium/cilium/pkg/node"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/statedb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// poolRequest is one input line in multi-pool mode. Do is one of put, delete, refuse, see,
// sync, know, start, crash, pass, next, restore, release, restored, say.
type poolRequest struct {
	Do     string `json:"do"`
	Pool   string `json:"pool,omitempty"`
	Owner  string `json:"owner,omitempty"`
	IP     string `json:"ip,omitempty"`
	Family string `json:"family,omitempty"`
	// Quietly makes next trigger no write.
	Quietly bool `json:"quietly,omitempty"`
	// Node is the object that put stores.
	Node *ciliumv2.CiliumNode `json:"node,omitempty"`
	// Refuse is the error of the next write: "conflict" or "error".
	Refuse string `json:"refuse,omitempty"`
	// Last makes see skip the versions in between.
	Last bool `json:"last,omitempty"`
	// Known is true if a CiliumPodIPPool of that name exists.
	Known bool `json:"known,omitempty"`
	// Reserve, IPv6 and Rate configure the agent at start.
	Reserve map[string]string `json:"reserve,omitempty"`
	IPv6    bool              `json:"ipv6,omitempty"`
	Rate    time.Duration     `json:"rate,omitempty"`
	// For is the duration of pass.
	For time.Duration `json:"for,omitempty"`
}

// poolResponse is one output line: the allocations, and the resulting state.
type poolResponse struct {
	Err       string               `json:"err,omitempty"`
	Got       string               `json:"got,omitempty"`
	Ready     bool                 `json:"ready,omitempty"`
	Allocated []string             `json:"allocated,omitempty"`
	Node      *ciliumv2.CiliumNode `json:"node,omitempty"`
}

// poolServer is a node in multi-pool mode.
type poolServer struct {
	store *nodeStore
	db    *statedb.DB
	known statedb.RWTable[podippool.LocalPodIPPool]

	// Fields of this run of the agent; nil if it is down.
	ipam  *ipam.IPAM
	ready chan struct{}
	stop  func() error
}

func newPoolServer() (*poolServer, error) {
	db := statedb.New()
	known, err := podippool.NewTable(db)
	return &poolServer{store: &nodeStore{}, db: db, known: known}, err
}

func (s *poolServer) serve(line []byte) (any, error) {
	var req poolRequest
	if err := json.Unmarshal(line, &req); err != nil {
		return nil, err
	}
	var resp poolResponse
	if err := s.do(req, &resp); err != nil {
		resp.Err = err.Error()
	}
	synctest.Wait()
	resp.Node = s.store.current()
	if resp.Ready = s.isReady(); resp.Ready {
		resp.Allocated = allocated(s.ipam)
	}
	return resp, nil
}

func (s *poolServer) isReady() bool {
	if s.ipam == nil {
		return false
	}
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

func (s *poolServer) do(req poolRequest, resp *poolResponse) error {
	switch req.Do {
	case "put":
		s.store.put(req.Node)
	case "delete":
		s.store.delete()
	case "refuse":
		s.store.refuse = req.Refuse
	case "see":
		s.store.see(req.Last)
	case "sync":
		s.store.sync()
	case "know":
		s.know(req.Pool, req.Known)
	case "start":
		return s.start(req)
	case "crash":
		s.ipam = nil
		return s.stop()
	case "pass":
		time.Sleep(req.For)
	case "say":
	default:
		if !s.isReady() {
			return fmt.Errorf("%s: there are no allocators", req.Do)
		}
		return s.allocator(req, resp)
	}
	return nil
}

func (s *poolServer) allocator(req poolRequest, resp *poolResponse) error {
	switch req.Do {
	case "next":
		allocate := s.ipam.AllocateNextFamily
		if req.Quietly {
			allocate = s.ipam.AllocateNextFamilyWithoutSyncUpstream
		}
		result, err := allocate(ipam.Family(req.Family), req.Owner, ipam.Pool(req.Pool))
		if err == nil {
			resp.Got = result.IP.String()
		}
		return err
	case "restored":
		s.ipam.RestoreFinished()
		return nil
	}
	ip, err := netip.ParseAddr(req.IP)
	if err != nil {
		return err
	}
	switch req.Do {
	case "restore":
		_, err := s.ipam.AllocateIPWithoutSyncUpstream(ip, req.Owner, ipam.Pool(req.Pool))
		return err
	case "release":
		return s.ipam.ReleaseIP(ip, ipam.Pool(req.Pool))
	}
	return fmt.Errorf("unknown request %q", req.Do)
}

// start starts the agent's IPAM. ConfigureAllocator returns once it has its pools.
func (s *poolServer) start(req poolRequest) error {
	group, stop, err := jobs()
	if err != nil {
		return err
	}
	option.Config.IPAMDefaultIPPool = defaultPool
	s.store.restart()
	s.stop, s.ready = stop, make(chan struct{})
	s.ipam = ipam.NewIPAM(ipam.NewIPAMParams{
		Logger: slog.New(slog.DiscardHandler),
		AgentConfig: &option.DaemonConfig{
			EnableIPv4:                 true,
			EnableIPv6:                 req.IPv6,
			IPAM:                       ipamoption.IPAMMultiPool,
			IPAMCiliumNodeUpdateRate:   req.Rate,
			IPAMMultiPoolPreAllocation: req.Reserve,
		},
		LocalNodeStore: node.NewTestLocalNodeStore(node.LocalNode{}),
		NodeResource:   s.store,
		Clientset:      storeClient{store: s.store},
		Metadata:       onePool{},
		JobGroup:       group,
		DB:             s.db,
		PodIPPools:     s.known,
	})
	go func(agent *ipam.IPAM, ready chan struct{}) {
		agent.ConfigureAllocator()
		close(ready)
	}(s.ipam, s.ready)
	return nil
}

// know creates or deletes a CiliumPodIPPool, as the agent sees it.
func (s *poolServer) know(pool string, known bool) {
	txn := s.db.WriteTxn(s.known)
	defer txn.Commit()
	obj := podippool.LocalPodIPPool{CiliumPodIPPool: &v2alpha1.CiliumPodIPPool{ObjectMeta: metav1.ObjectMeta{Name: pool}}}
	if known {
		s.known.Insert(txn, obj)
	} else {
		s.known.Delete(txn, obj)
	}
}
