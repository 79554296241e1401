package main

import (
	"crypto/tls"

	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// metricsServer says how /metrics is served: where it is secure, only to those
// whom the API server knows and lets get the path /metrics. Without a
// certificate of its own it makes one at the start that nobody signed.
func (o *options) metricsServer() metricsserver.Options {
	m := metricsserver.Options{BindAddress: o.metricsAddr, SecureServing: o.metricsSecure}
	if o.metricsSecure {
		m.FilterProvider = filters.WithAuthenticationAndAuthorization
		m.CertDir = o.metricsCertDir
		// HTTP/2 gains nothing here, and was open to floods of resets.
		m.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}
	}
	return m
}
