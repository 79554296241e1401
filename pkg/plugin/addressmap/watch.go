package addressmap

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

const (
	// lowestPause is the minimum time between two maps: changes in between are drawn together.
	// pauseFactor keeps a large cluster from taking more than a fifth of a processor.
	lowestPause = 250 * time.Millisecond
	pauseFactor = 4
	// problemFor is the time that a failed watch is shown. A failing watch fails again within 30 s,
	// client-go's longest back-off.
	problemFor = 45 * time.Second
	// pingEvery is the interval of checks that the API server responds: watches report no error
	// while a connection is refused (client-go v0.36, tools/cache/reflector.go). pingTime is the
	// timeout.
	pingEvery, pingTime = 5 * time.Second, 5 * time.Second
)

// watched is a followed cluster, and a client to see whether its API server responds.
type watched struct {
	*clusterview.Followed
	client client.Client
}

// watchCluster returns once everything has been read. The watches end with ctx.
func watchCluster(ctx context.Context, e *cli.Env) (*watched, error) {
	config, err := e.Config()
	if err != nil {
		return nil, err
	}
	c, err := e.Client()
	if err != nil {
		return nil, err
	}
	operator, err := e.FindOperator(ctx)
	if err != nil {
		return nil, err
	}
	namespace, selector, err := e.AgentSelection(operator)
	if err != nil {
		return nil, err
	}
	followed, err := clusterview.Follow(ctx, config, c, operator, namespace, selector)
	return &watched{followed, c}, err
}

// ping sends the API server a minimal request periodically until ctx ends.
func (w *watched) ping(ctx context.Context) {
	for cli.Sleep(ctx, pingEvery) == nil {
		once, stop := context.WithTimeout(ctx, pingTime)
		err := w.client.List(once, &corev1.NodeList{}, client.Limit(1))
		stop()
		if err != nil && ctx.Err() == nil {
			w.Fail(err)
		}
	}
}

// follow puts a map of the named cluster on the board whenever something has changed, until ctx ends.
func (w *watched) follow(ctx context.Context, board *Board, name string) {
	go w.ping(ctx)
	healed := time.NewTimer(problemFor)
	defer healed.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-w.Failed:
			board.Problem(w.Unreadable(err).Error())
			healed.Reset(problemFor)
			continue
		case <-healed.C:
			board.Problem("")
			continue
		case <-w.Changed:
		}
		began := time.Now()
		c, err := w.Cluster(ctx)
		if err != nil {
			w.Fail(err)
			continue
		}
		board.Put(mapOf(c, name))
		_ = cli.Sleep(ctx, max(lowestPause, pauseFactor*time.Since(began)))
	}
}
