// Package gateway calls the JSON gateway of etcd, to read and write what kube-apiserver stores
// without kube-apiserver.
package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// Prefixes of the keys of objects (kube-apiserver v1.36, --etcd-prefix=/registry; Nodes are
// called minions there).
const (
	Nodes       = "/registry/minions/"
	Pods        = "/registry/pods/"
	CiliumNodes = "/registry/cilium.io/ciliumnodes/"
	Blocks      = "/registry/cilium-pool.io/podipblocks/"
)

// Client calls an etcd.
type Client struct{ http *http.Client }

// New returns a Client for the etcd that listens on a unix socket.
func New(socket string) *Client {
	var dialer net.Dialer
	return &Client{http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}}
}

// Requests and responses of the gateway (etcd v3.6, api/etcdserverpb/rpc.proto): numbers are
// strings, keys and values base64.

// KeyValue is a key as etcd returns it.
type KeyValue struct {
	Key         []byte `json:"key"`
	Value       []byte `json:"value"`
	ModRevision uint64 `json:"mod_revision,string"`
}

type header struct {
	Revision uint64 `json:"revision,string"`
}

type rangeRequest struct {
	Key      []byte `json:"key"`
	RangeEnd []byte `json:"range_end"`
	Limit    int64  `json:"limit,omitempty"`
	Revision uint64 `json:"revision,string,omitempty"`
}

type rangeResponse struct {
	Header header     `json:"header"`
	KVs    []KeyValue `json:"kvs"`
	More   bool       `json:"more"`
}

type putRequest struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

type requestOp struct {
	Put putRequest `json:"requestPut"`
}

type txnRequest struct {
	Success []requestOp `json:"success"`
}

// call sends a request to the gateway, and reads the response.
func (c *Client) call(ctx context.Context, path string, body, into any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	// The host is only a name: connections go to the socket.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd"+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return errors.Join(fmt.Errorf("etcd answered %s: %s", resp.Status, text), err)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// page is the number of objects per request: CiliumNodes are large.
const page = 100

// Range reads the keys below a prefix at one revision, the newest.
func (c *Client) Range(ctx context.Context, prefix string) ([]KeyValue, error) {
	var all []KeyValue
	req := rangeRequest{Key: []byte(prefix), RangeEnd: end(prefix), Limit: page}
	for {
		var got rangeResponse
		if err := c.call(ctx, "/v3/kv/range", req, &got); err != nil {
			return nil, err
		}
		all = append(all, got.KVs...)
		if req.Revision == 0 {
			req.Revision = got.Header.Revision
		}
		if !got.More || len(got.KVs) == 0 {
			return all, nil
		}
		req.Key = append(bytes.Clone(got.KVs[len(got.KVs)-1].Key), 0)
	}
}

// maxOps and maxBytes keep a transaction within etcd's limits: --max-txn-ops, 128, and
// --max-request-bytes, 1.5 MiB (server/embed/config.go, etcd v3.6).
const (
	maxOps   = 100
	maxBytes = 1 << 20
)

// Put writes keys, in as few transactions as their number and size allow. Their revisions are
// ignored.
func (c *Client) Put(ctx context.Context, all []KeyValue) error {
	for len(all) > 0 {
		var txn txnRequest
		for size := 0; len(all) > 0 && len(txn.Success) < maxOps && (len(txn.Success) == 0 || size+len(all[0].Value) <= maxBytes); all = all[1:] {
			txn.Success = append(txn.Success, requestOp{putRequest{all[0].Key, all[0].Value}})
			size += len(all[0].Value)
		}
		var answer struct{}
		if err := c.call(ctx, "/v3/kv/txn", txn, &answer); err != nil {
			return err
		}
	}
	return nil
}

// end returns the first key after all keys that begin with prefix, which ends with '/'.
func end(prefix string) []byte {
	out := []byte(prefix)
	out[len(out)-1]++
	return out
}
