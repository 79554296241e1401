package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/link"
)

// Faults of runs with two API servers.
const (
	apiSwitched      fault = "operators moved between the API servers"
	apiLags          fault = "API server of the leader lags"
	apiLagsAtStart   fault = "operators started on an API server that lags"
	apiCutOffLeader  fault = "API server of the leader cut off from etcd"
	apiCutOffStandby fault = "API server of the standby cut off from etcd until it led"
	apiSecondKilled  fault = "API server of an operator killed"
)

// twoAPIServers adds a second kube-apiserver on the cluster's etcd. The link between the
// second one and etcd can fail.
type twoAPIServers struct {
	server *controlplane.Cluster
	link   *link.Link // from the second API server to etcd
}

func (c *chaos) apiServerFaults() lane {
	return lane{gap: 2 * time.Second, work: 5 * time.Second, faults: []named{
		{apiCutOffLeader, c.cutOffLeadersAPIServer}, {apiLagsAtStart, c.lagAtStart},
		{apiSwitched, c.switchAPIServers}, {apiLags, c.lagLeader},
		{apiCutOffStandby, c.cutOffStandbysAPIServer}, {apiSecondKilled, c.killSecondAPIServer},
	}}
}

func startSecondAPIServer(ctx context.Context, c *chaos) (err error) {
	way, err := link.New("unix:" + filepath.Join(c.cluster.Dir(), controlplane.EtcdSocket(0)))
	if err != nil {
		return err
	}
	c.second = &twoAPIServers{link: way}
	c.second.server, err = controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(c.dir, "second"), BinDir: c.BinDir, AuditLog: true, AuditPolicy: c.Mode.auditPolicy(),
		Join: c.cluster, EtcdServers: "http://" + way.Addr(), CRDs: []*apiextensionsv1.CustomResourceDefinition{},
	})
	return err
}

func (s *twoAPIServers) stop() error {
	if s == nil {
		return nil
	}
	var err error
	if s.server != nil {
		err = s.server.Stop()
	}
	return errors.Join(err, s.link.Close())
}

// attach moves an operator to an API server.
func (o *operator) attach(to *controlplane.Cluster) {
	o.link.Route(strings.TrimPrefix(to.Config().Host, "https://"))
	o.link.Reset()
}

func (c *chaos) switchAPIServers(ctx context.Context, random *rand.Rand) error {
	for range 4 {
		c.load.surge(ctx)
		for _, o := range c.operator {
			o.attach([]*controlplane.Cluster{c.cluster, c.second.server}[random.IntN(2)])
		}
		if err := harness.Sleep(ctx, time.Second+upTo(random, 3*time.Second)); err != nil {
			return err
		}
	}
	return nil
}

// lag delays everything between the second API server and etcd. The delay of two round trips
// to etcd, as a write of the Lease takes, stays below the leader's request timeout.
func (c *chaos) lag(random *rand.Rand) {
	c.second.link.Set(link.Quality{Delay: 200*time.Millisecond + upTo(random, 300*time.Millisecond)})
}

func (c *chaos) lagLeader(ctx context.Context, random *rand.Rand) error {
	leads, waits, err := c.lead(ctx)
	if err != nil {
		return err
	}
	c.lag(random)
	defer c.second.link.Set(link.Quality{})
	leads.attach(c.second.server)
	waits.attach(c.cluster)
	c.load.surge(ctx)
	return harness.Sleep(ctx, 5*time.Second+upTo(random, 5*time.Second))
}

func (c *chaos) lagAtStart(ctx context.Context, random *rand.Rand) error {
	if _, _, err := c.lead(ctx); err != nil {
		return err
	}
	c.lag(random)
	defer c.second.link.Set(link.Quality{})
	c.load.surge(ctx)
	begin := time.Now()
	for _, o := range c.operator {
		o.attach(c.second.server)
		if err := o.kill(upTo(random, time.Second)); err != nil {
			return err
		}
	}
	if err := c.awaitLeaderSince(ctx, begin); err != nil {
		return err
	}
	return harness.Sleep(ctx, upTo(random, 3*time.Second))
}

// cutOffLeadersAPIServer cuts the leader's API server off from etcd, and delivers what it has
// sent only once another operator leads.
func (c *chaos) cutOffLeadersAPIServer(ctx context.Context, random *rand.Rand) error {
	leads, waits, err := c.lead(ctx)
	if err != nil {
		return err
	}
	defer c.second.link.Set(link.Quality{})
	waits.attach(c.cluster)
	leads.attach(c.second.server)
	if err := harness.Sleep(ctx, time.Second); err != nil { // it reconnects
		return err
	}
	c.load.surge(ctx)
	if err := harness.Sleep(ctx, upTo(random, time.Second)); err != nil {
		return err
	}
	c.second.link.Set(link.Partitioned)
	_, err = c.awaitLeader(ctx, leads)
	return err
}

// cutOffStandbysAPIServer makes an operator become leader that has seen nothing for a while,
// as its API server was cut off from etcd. It must do so without a restart.
func (c *chaos) cutOffStandbysAPIServer(ctx context.Context, random *rand.Rand) error {
	leads, waits, err := c.lead(ctx)
	if err != nil {
		return err
	}
	defer c.second.link.Set(link.Quality{})
	leads.attach(c.cluster)
	waits.attach(c.second.server)
	if err := harness.Sleep(ctx, time.Second); err != nil {
		return err
	}
	c.second.link.Set(link.Partitioned)
	c.load.surge(ctx)
	if err := harness.Sleep(ctx, 3*time.Second+upTo(random, 3*time.Second)); err != nil {
		return err
	}
	return c.takesOver(ctx, leads, waits, syscall.SIGKILL, func() { c.second.link.Set(link.Quality{}) })
}

// takesOver stops the leader with a signal, and keeps it down until the standby leads, in the
// process that is already running. It calls then after the signal.
func (c *chaos) takesOver(ctx context.Context, leads, waits *operator, by syscall.Signal, then func()) error {
	starts := waits.started()
	release, err := leads.keepDown(by)
	if err != nil {
		return err
	}
	defer release()
	then()
	return until(ctx, c.noticesWithin(), func(context.Context) error {
		switch {
		case waits.started() != starts:
			return fmt.Errorf("%s was to take the lead, and ended", waits.name)
		case waits.leadsSince().IsZero():
			return fmt.Errorf("%s does not lead", waits.name)
		}
		return nil
	})
}

func (c *chaos) killSecondAPIServer(ctx context.Context, random *rand.Rand) error {
	c.operator[random.IntN(len(c.operator))].attach(c.second.server)
	if err := harness.Sleep(ctx, time.Second); err != nil {
		return err
	}
	c.load.surge(ctx)
	if err := c.second.server.KillAPIServer(); err != nil {
		return err
	}
	c.dead()
	if err := harness.Sleep(ctx, upTo(random, 3*time.Second)); err != nil {
		return err
	}
	return c.second.server.StartAPIServer(ctx)
}
