package controller

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	requests "github.com/cilium-pool/cilium-pool-operator/pkg/controller/webhook"
)

// addWebhook adds the webhook that makes pods request addresses, if the settings name one. All
// replicas serve it, by what their watches have shown.
func addWebhook(mgr manager.Manager, o *Operator, s config.Settings) error {
	if s.Webhook.Name == "" || len(s.OfferFamilies) == 0 {
		return nil
	}
	host, port, err := net.SplitHostPort(s.WebhookAddress)
	if err != nil {
		return fmt.Errorf("reading the webhook's address: %w", err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("reading the webhook's port: %w", err)
	}
	certificate := &requests.Certificate{Service: s.Webhook, Live: mgr.GetAPIReader(), Writer: mgr.GetClient(), Clock: clock.RealClock{}}
	server := webhook.NewServer(webhook.Options{Host: host, Port: number, TLSOpts: []func(*tls.Config){
		func(c *tls.Config) {
			c.GetCertificate = certificate.Serve
			c.MinVersion = tls.VersionTLS13
		},
	}})
	server.Register(requests.Path, &admission.Webhook{Handler: &requests.Requests{Cluster: &o.Node.Cluster, Families: s.OfferFamilies}})
	// Until there is one and all objects have been read, the API server asks another replica: during an upgrade, too.
	return errors.Join(mgr.AddReadyzCheck("webhook", certificate.Ready), mgr.Add(certificate), mgr.Add(server))
}
