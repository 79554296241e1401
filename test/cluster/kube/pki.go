//go:build linux

package kube

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
)

// serviceRange is the range of ClusterIPs. Its first address is the API server's.
const (
	serviceRange     = "10.96.0.0/16"
	serviceRange6    = "fd00:10:96::/112"
	apiServerService = "10.96.0.1"
)

// pki writes the certificates and kubeconfigs of a cluster.
type pki struct {
	dir       string
	authority *controlplane.Authority
}

func (c *Cluster) pkiFile(name string) string { return filepath.Join(c.Dir, "pki", name) }

// writePKI creates everything but the nodes' certificates, which makeNode creates from the
// authority's files.
func (c *Cluster) writePKI(localURL string) error {
	authority, err := controlplane.NewAuthority("kubernetes-ca")
	if err != nil {
		return err
	}
	p := pki{dir: filepath.Join(c.Dir, "pki"), authority: authority}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	tokens, err := controlplane.NewTokenKey()
	if err != nil {
		return err
	}
	if err := p.write("service-accounts.key", tokens); err != nil {
		return err
	}
	if err := p.writePair("ca", authority.KeyPair()); err != nil {
		return err
	}
	server := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.ParseIP(apiServerAddress), net.ParseIP(apiServerService), net.ParseIP("127.0.0.1")},
	}
	if err := p.issue("kube-apiserver", server, x509.ExtKeyUsageServerAuth); err != nil {
		return err
	}
	for name, subject := range map[string]pkix.Name{
		"admin":                   {CommonName: "admin", Organization: []string{"system:masters"}},
		"kubelet-client":          {CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}},
		"kube-controller-manager": {CommonName: "system:kube-controller-manager"},
		"kube-scheduler":          {CommonName: "system:kube-scheduler"},
	} {
		if err := p.client(name, subject); err != nil {
			return err
		}
	}
	for number := 1; number <= MaxNodes; number++ {
		if err := p.node(number); err != nil {
			return err
		}
	}
	return p.kubeconfig(c.Kubeconfig(), "admin", localURL)
}

// node creates the certificate of a node, which is a server, too.
func (p pki) node(number int) error {
	name := NodeName(number)
	err := p.issue(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}},
		DNSNames:    []string{name},
		IPAddresses: []net.IP{net.ParseIP(nodeAddress(number))},
	}, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return err
	}
	return p.kubeconfig(filepath.Join(p.dir, name+".kubeconfig"), name, apiServerURL())
}

func (p pki) client(name string, subject pkix.Name) error {
	if err := p.issue(name, &x509.Certificate{Subject: subject}, x509.ExtKeyUsageClientAuth); err != nil {
		return err
	}
	return p.kubeconfig(filepath.Join(p.dir, name+".kubeconfig"), name, apiServerURL())
}

func (p pki) issue(name string, template *x509.Certificate, usage ...x509.ExtKeyUsage) error {
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, usage
	pair, err := p.authority.Issue(template)
	if err != nil {
		return fmt.Errorf("certificate of %s: %w", name, err)
	}
	return p.writePair(name, pair)
}

func (p pki) writePair(name string, pair controlplane.KeyPair) error {
	if err := p.write(name+".crt", pair.Cert); err != nil {
		return err
	}
	return p.write(name+".key", pair.Key)
}

func (p pki) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(p.dir, name), data, 0o600)
}

// kubeconfig writes a kubeconfig that needs no other file.
func (p pki) kubeconfig(path, user, url string) error {
	config := &rest.Config{Host: url}
	for file, into := range map[string]*[]byte{"ca.crt": &config.CAData, user + ".crt": &config.CertData, user + ".key": &config.KeyData} {
		data, err := os.ReadFile(filepath.Join(p.dir, file))
		if err != nil {
			return err
		}
		*into = data
	}
	return controlplane.WriteKubeconfig(path, config)
}

func apiServerURL() string { return "https://" + net.JoinHostPort(apiServerAddress, apiServerPort) }
