package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// validFor is the life of a certificate, renewBefore the rest of it at which the next one is made.
	validFor, renewBefore = 365 * 24 * time.Hour, 30 * 24 * time.Hour
	// checkEvery is the time until a replica serves a certificate that another one has made, retryAfter
	// the time until the next attempt after an error.
	checkEvery, retryAfter = time.Minute, 5 * time.Second
)

// Certificate keeps the webhook's certificate, self-signed, in a Secret that all replicas serve, and
// shows it to the API server in the MutatingWebhookConfiguration of the same name. The chart creates
// both. An error ends neither the operator nor its other work: pods are created without requests.
type Certificate struct {
	// Service is the namespace and the name of the Secret, the configuration and the Service.
	Service types.NamespacedName
	Live    client.Reader
	Writer  client.Client
	Clock   clock.WithTicker

	current atomic.Pointer[tls.Certificate]
}

// NeedLeaderElection makes all replicas serve.
func (c *Certificate) NeedLeaderElection() bool { return false }

// Serve returns the certificate for a connection.
func (c *Certificate) Serve(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := c.current.Load(); current != nil {
		return current, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// Ready checks that there is a certificate.
func (c *Certificate) Ready(*http.Request) error {
	_, err := c.Serve(nil)
	return err
}

// Start keeps the certificate until ctx ends.
func (c *Certificate) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("webhook")
	for {
		next := checkEvery
		if err := c.Refresh(ctx); err != nil && ctx.Err() == nil {
			logger.Error(err, "keeping the certificate of the webhook: new pods request no addresses meanwhile")
			next = retryAfter
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.Clock.After(next):
		}
	}
}

// Refresh reads the certificate, makes another one if it is missing or expires soon, and shows it to
// the API server. If another replica made one at the same time, the write fails: that one counts.
func (c *Certificate) Refresh(ctx context.Context) error {
	secret := &corev1.Secret{}
	if err := c.Live.Get(ctx, c.Service, secret); err != nil {
		return fmt.Errorf("reading Secret %s: %w", c.Service, err)
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	host := c.Service.Name + "." + c.Service.Namespace + ".svc"
	if err != nil || c.Clock.Now().Add(renewBefore).After(pair.Leaf.NotAfter) || pair.Leaf.VerifyHostname(host) != nil {
		certificate, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: host, MaxAge: validFor})
		if err != nil {
			return fmt.Errorf("making a certificate: %w", err)
		}
		secret.Data = map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
		if err := c.Writer.Update(ctx, secret); err != nil {
			return fmt.Errorf("writing Secret %s: %w", c.Service, err)
		}
		if pair, err = tls.X509KeyPair(certificate, key); err != nil {
			return err
		}
	}
	c.current.Store(&pair)
	return c.show(ctx, secret.Data[corev1.TLSCertKey])
}

// show makes the API server trust a certificate.
func (c *Certificate) show(ctx context.Context, certificate []byte) error {
	config := &admissionv1.MutatingWebhookConfiguration{}
	if err := c.Live.Get(ctx, types.NamespacedName{Name: c.Service.Name}, config); err != nil {
		return fmt.Errorf("reading MutatingWebhookConfiguration %s: %w", c.Service.Name, err)
	}
	old := config.DeepCopy()
	for i := range config.Webhooks {
		config.Webhooks[i].ClientConfig.CABundle = certificate
	}
	if len(old.Webhooks) == 0 || bytes.Equal(old.Webhooks[0].ClientConfig.CABundle, certificate) {
		return nil
	}
	if err := c.Writer.Patch(ctx, config, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing MutatingWebhookConfiguration %s: %w", c.Service.Name, err)
	}
	return nil
}
