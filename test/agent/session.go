package agent

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Session is a Store with the watch that feeds it and the status writes that it requests: the
// objects of newNodeStore (crd.go:91) for one run of an agent.
type Session struct {
	Store *Store

	client  client.Client
	hub     *Hub
	name    string
	trigger *trigger
}

// NewSession returns a Session of the named CiliumNode that writes at most
// once per updateRate. It sets opts.Trigger.
func NewSession(c client.Client, hub *Hub, name string, updateRate time.Duration, opts StoreOptions) *Session {
	s := &Session{client: c, hub: hub, name: name, trigger: newTrigger(updateRate)}
	opts.Trigger = s.trigger.request
	s.Store = NewStore(opts)
	return s
}

// Watch starts feeding the Store; the returned function ends it.
func (s *Session) Watch() (cancel func()) { return s.hub.Subscribe(s.name, s.Store.Observe) }

// Write writes the status whenever a write is requested, until ctx ends.
func (s *Session) Write(ctx context.Context) {
	s.trigger.run(ctx, func() { s.report(ctx) })
}

// RestoreFinished requests the first write (crd.go:230).
func (s *Session) RestoreFinished() { s.trigger.request("initial sync") }

// Idle reports whether all requested writes are done.
func (s *Session) Idle() bool { return s.trigger.idle() }

// report is refreshNodeTrigger (crd.go:505): after an error, often a conflict, the next trigger
// tries again.
func (s *Session) report(ctx context.Context) {
	cn := s.Store.Report()
	if cn == nil {
		return
	}
	if s.client.Status().Update(ctx, cn) != nil {
		s.trigger.request("retry after error")
	}
}
