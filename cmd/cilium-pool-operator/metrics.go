package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// metricsServer configures the /metrics endpoint. If it is secure, only clients that the
// API server authenticates and authorizes for the path /metrics have access. Without a
// certificate it generates a self-signed one at startup.
func (o *options) metricsServer() metricsserver.Options {
	m := metricsserver.Options{BindAddress: o.metricsAddr, SecureServing: o.metricsSecure}
	if o.metricsSecure {
		m.FilterProvider = filters.WithAuthenticationAndAuthorization
		m.CertDir = o.metricsCertDir
		// HTTP/2 has no benefit here, and has been vulnerable to floods of resets.
		m.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}
	}
	return m
}

// countRequests counts requests to the API server in controller-runtime's
// rest_client_requests_total. Cilium's pkg/k8s/watchers/metrics, which Cilium's API types import,
// replaces controller-runtime's adapter in its init by one that counts for cilium-agent.
func countRequests() error {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rest_client_requests_total", Help: "Number of HTTP requests, partitioned by status code, method, and host.",
	}, []string{"code", "method", "host"})
	err := metrics.Registry.Register(vec)
	if registered := (prometheus.AlreadyRegisteredError{}); errors.As(err, &registered) {
		vec = registered.ExistingCollector.(*prometheus.CounterVec)
		err = nil
	}
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	clientmetrics.RequestResult = requestCounter{vec}
	return nil
}

type requestCounter struct{ vec *prometheus.CounterVec }

func (c requestCounter) Increment(_ context.Context, code, method, host string) {
	c.vec.WithLabelValues(code, method, host).Inc()
}
