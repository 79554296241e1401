package etcd

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/gateway"
)

type statusResponse struct {
	Header struct {
		Member uint64 `json:"member_id,string"`
	} `json:"header"`
	Leader uint64 `json:"leader,string"`
}

// Leader returns which of the members that listen on these sockets leads.
func Leader(ctx context.Context, sockets ...string) (int, error) {
	leader, _, err := leaderOf(ctx, sockets)
	return leader, err
}

// MoveLeader makes the leader transfer its leadership to another member, and returns which.
func MoveLeader(ctx context.Context, sockets ...string) (int, error) {
	leader, members, err := leaderOf(ctx, sockets)
	if err != nil {
		return 0, err
	}
	next := (leader + 1) % len(sockets)
	req := map[string]string{"targetID": fmt.Sprint(members[next])}
	var answer struct{}
	return next, gateway.New(sockets[leader]).Call(ctx, "/v3/maintenance/transfer-leadership", req, &answer)
}

// leaderOf asks each member whether it leads, and for its ID, which is 0 if it did not answer.
func leaderOf(ctx context.Context, sockets []string) (leader int, members []uint64, err error) {
	leader, members = -1, make([]uint64, len(sockets))
	for i, socket := range sockets {
		var got statusResponse
		if e := gateway.New(socket).Call(ctx, "/v3/maintenance/status", struct{}{}, &got); e != nil {
			err = errors.Join(err, e)
			continue
		}
		members[i] = got.Header.Member
		if got.Leader == got.Header.Member {
			leader = i
		}
	}
	if leader < 0 {
		return 0, nil, errors.Join(errors.New("no member of etcd leads"), err)
	}
	return leader, members, nil
}
