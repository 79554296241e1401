package floor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// ended marks the last event of a streaming list.
const ended = "k8s.io/initial-events-end"

const (
	asJSON     = "application/json"
	asProtobuf = "application/vnd.kubernetes.protobuf;stream=watch"
)

// Stream receives all watched objects of the operator once, one kind beside the other, as
// streaming lists in the encoding that the operator asks for, and throws them away. No
// program that needs all of it is ready before.
func Stream(ctx context.Context, f *Floor) error {
	reads := []struct{ path, fields, labels, accept string }{
		{path: bed.Blocks, accept: asJSON}, {path: bed.CiliumNodes, accept: asJSON},
		{path: "/apis/cilium-pool.io/v1alpha1/podippools", accept: asJSON}, {path: bed.Nodes, accept: asProtobuf},
		{path: podsPath, fields: podFields, accept: asProtobuf},
		{path: "/api/v1/namespaces/kube-system/pods", labels: "k8s-app=cilium", accept: asProtobuf},
	}
	err := harness.Parallel(ctx, len(reads), len(reads), func(ctx context.Context, i int) error {
		r := reads[i]
		body, err := f.api.Get().AbsPath(r.path).Param("watch", "1").Param("sendInitialEvents", "true").Param("allowWatchBookmarks", "true").
			Param("resourceVersionMatch", "NotOlderThan").Param("fieldSelector", r.fields).Param("labelSelector", r.labels).
			SetHeader("Accept", r.accept).Stream(ctx)
		if err != nil {
			return fmt.Errorf("stream %s: %w", r.path, err)
		}
		defer body.Close()
		next := line
		if r.accept == asProtobuf {
			next = frame
		}
		if err := untilEnded(bufio.NewReaderSize(body, 1<<20), next); err != nil {
			return fmt.Errorf("stream %s: %w", r.path, err)
		}
		return nil
	})
	if err == nil {
		f.say("read")
	}
	return err
}

// untilEnded reads events up to the mark that ends a list.
func untilEnded(in *bufio.Reader, next func(in *bufio.Reader, buffer []byte) ([]byte, error)) error {
	var event []byte
	var err error
	for !bytes.Contains(event, []byte(ended)) {
		if event, err = next(in, event[:0]); err != nil {
			return err
		}
	}
	return nil
}

// line is an event in JSON.
func line(in *bufio.Reader, buffer []byte) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		buffer = append(buffer, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return buffer, err
		}
	}
}

// frame is an event in protobuf, after its length.
func frame(in *bufio.Reader, buffer []byte) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(length[:]))
	if cap(buffer) < n {
		buffer = make([]byte, n)
	}
	_, err := io.ReadFull(in, buffer[:n])
	return buffer[:n], err
}
