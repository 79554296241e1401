package bed

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// RawClient sends and receives JSON unmodified, without a client-side limit.
func RawClient(config *rest.Config) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.GroupVersion, config.NegotiatedSerializer = &schema.GroupVersion{}, scheme.Codecs
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	return rest.UnversionedRESTClientFor(config)
}

// Follower is a watch of raw events.
type Follower struct {
	api            *rest.RESTClient
	dialer         *connrotation.Dialer
	path, selector string
	version        string
	body           io.ReadCloser
}

// Follow begins to watch, from now on, the objects at path that a field selector selects.
//
// It has a connection of its own, as the operator's watches share none with its writes. Behind
// the responses to many writes events would be late, and the API server might end the watch.
func Follow(ctx context.Context, config *rest.Config, path, selector string) (*Follower, error) {
	f := &Follower{dialer: connrotation.NewDialer((&net.Dialer{}).DialContext), path: path, selector: selector}
	config = rest.CopyConfig(config)
	config.Dial = f.dialer.DialContext // client-go shares no connections of a config with a dialer
	var err error
	if f.api, err = RawClient(config); err != nil {
		return nil, err
	}
	if err := f.begin(ctx); err != nil {
		f.dialer.CloseAll()
		return nil, err
	}
	return f, nil
}

// begin begins the watch at the current version.
func (f *Follower) begin(ctx context.Context) error {
	data, err := f.api.Get().AbsPath(f.path).Param("limit", "1").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("watch %s: %w", f.path, err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("watch %s: %w", f.path, err)
	}
	f.version = list.ResourceVersion
	return f.connect(ctx)
}

// notReady is the wait before a retry if the API server cannot serve a watch yet.
const notReady = 250 * time.Millisecond

// connect begins the watch. An API server that has just started refuses watches of a kind
// until it has read all of it, which may take longer than the client itself retries.
func (f *Follower) connect(ctx context.Context) error {
	for {
		r := f.api.Get().AbsPath(f.path).Param("watch", "1").Param("resourceVersion", f.version)
		if f.selector != "" {
			r = r.Param("fieldSelector", f.selector)
		}
		var err error
		if f.body, err = r.Stream(ctx); err == nil {
			return nil
		}
		err = fmt.Errorf("watch %s: %w", f.path, err)
		if !apierrors.IsTooManyRequests(err) {
			return err
		}
		if ended := harness.Sleep(ctx, notReady); ended != nil {
			return errors.Join(err, ended)
		}
	}
}

// Run passes every event to take until ctx ends. The API server ends the watch of a client
// that cannot keep up for a moment; Run then resumes it where it was. At the end it closes the
// connection.
func (f *Follower) Run(ctx context.Context, take func(event []byte)) error {
	defer f.dialer.CloseAll()
	var err error
	for err == nil {
		err = f.drain(take)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = f.connect(ctx)
		}
	}
	if ctx.Err() != nil {
		err = nil // the caller ended it
	}
	return err
}

func (f *Follower) drain(take func(event []byte)) error {
	defer f.body.Close()
	lines := bufio.NewReaderSize(f.body, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		if bytes.HasPrefix(line, []byte(`{"type":"ERROR"`)) {
			return fmt.Errorf("watch %s: ended by the API server: %.200s", f.path, line)
		}
		f.version = field(line, "resourceVersion")
		take(line)
	}
}
