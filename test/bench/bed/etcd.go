package bed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
)

// maxOps and maxBytes keep a transaction within etcd's limits: --max-txn-ops, 128, and
// --max-request-bytes, 1.5 MiB (server/embed/config.go, etcd v3.6).
const (
	maxOps   = 100
	maxBytes = 1 << 20
)

// keyValue is a key of etcd. encoding/json writes both in base64, as etcd's gateway expects.
type keyValue struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// etcdClient reads and writes etcd through its JSON gateway.
type etcdClient struct{ http *http.Client }

// etcd returns a client of the stage's etcd.
func (s *Stage) etcd() *etcdClient {
	pid, _ := s.cluster.PIDs()
	// Through the working directory of etcd, as a socket's path is limited to 107 bytes.
	socket := fmt.Sprintf("/proc/%d/cwd/%s", pid, controlplane.EtcdSocket(0))
	return &etcdClient{http: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: populateWorkers,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
}

// list returns all keys that begin with a prefix.
func (e *etcdClient) list(ctx context.Context, prefix string) ([]keyValue, error) {
	end := []byte(prefix)
	end[len(end)-1]++
	var out struct {
		KVs []keyValue `json:"kvs"`
	}
	err := e.call(ctx, "range", map[string]any{"key": []byte(prefix), "range_end": end}, &out)
	return out.KVs, err
}

// put writes keys, in as few transactions as their number and size allow.
func (e *etcdClient) put(ctx context.Context, all []keyValue) error {
	type op struct {
		Put keyValue `json:"requestPut"`
	}
	for len(all) > 0 {
		var ops []op
		for size := 0; len(all) > 0 && len(ops) < maxOps && (len(ops) == 0 || size+len(all[0].Value) <= maxBytes); all = all[1:] {
			ops, size = append(ops, op{all[0]}), size+len(all[0].Value)
		}
		if err := e.call(ctx, "txn", map[string]any{"success": ops}, nil); err != nil {
			return err
		}
	}
	return nil
}

// call sends a request to the gateway, and reads the response into out unless that is nil.
func (e *etcdClient) call(ctx context.Context, method string, request, out any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/kv/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %s", resp.Status, answer)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}
