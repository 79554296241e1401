package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Requests and responses of etcd's JSON gateway (etcd v3.6, api/etcdserverpb/rpc.proto):
// numbers are strings, keys and values base64.

type keyValue struct {
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
	KeysOnly bool   `json:"keys_only,omitempty"`
}

type rangeResponse struct {
	Header header     `json:"header"`
	KVs    []keyValue `json:"kvs"`
	More   bool       `json:"more"`
}

type watchRequest struct {
	Create struct {
		Key           []byte `json:"key"`
		RangeEnd      []byte `json:"range_end"`
		StartRevision uint64 `json:"start_revision,string"`
		Fragment      bool   `json:"fragment"`
	} `json:"create_request"`
}

type watchResponse struct {
	Result struct {
		Canceled        bool    `json:"canceled"`
		CancelReason    string  `json:"cancel_reason"`
		CompactRevision uint64  `json:"compact_revision,string"`
		Events          []event `json:"events"`
	} `json:"result"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

type event struct {
	Type string   `json:"type"` // PUT if it is missing, else DELETE
	KV   keyValue `json:"kv"`
}

// post sends a request to the gateway; the caller closes the response.
func (s *Store) post(ctx context.Context, path string, body any) (io.ReadCloser, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	// The host is only a name: connections go to the socket.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, errors.Join(fmt.Errorf("etcd answered %s: %s", resp.Status, text), err, resp.Body.Close())
	}
	return resp.Body, nil
}

// page is the number of objects per request: CiliumNodes are large.
const page = 100

// readRange reads everything below a prefix at one revision, or at the newest if it is 0. It
// returns the revision.
func (s *Store) readRange(ctx context.Context, prefix string, at uint64, keysOnly bool) ([]keyValue, uint64, error) {
	var all []keyValue
	req := rangeRequest{Key: []byte(prefix), RangeEnd: end(prefix), Revision: at, KeysOnly: keysOnly}
	if !keysOnly {
		req.Limit = page
	}
	for {
		var got rangeResponse
		if err := s.call(ctx, "/v3/kv/range", req, &got); err != nil {
			return nil, 0, err
		}
		all = append(all, got.KVs...)
		if req.Revision == 0 {
			req.Revision = got.Header.Revision
		}
		if !got.More || len(got.KVs) == 0 {
			return all, req.Revision, nil
		}
		req.Key = append(bytes.Clone(got.KVs[len(got.KVs)-1].Key), 0)
	}
}

func (s *Store) call(ctx context.Context, path string, body, into any) error {
	answer, err := s.post(ctx, path, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	return json.NewDecoder(answer).Decode(into)
}

// end returns the first key after all keys that begin with prefix, which ends with '/'.
func end(prefix string) []byte {
	out := []byte(prefix)
	out[len(out)-1]++
	return out
}
