package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Files below Dir, as the flags of kube-apiserver name them.
const (
	pkiDir            = "pki"
	caCertFile        = pkiDir + "/ca.crt"
	serverCertFile    = pkiDir + "/server.crt"
	serverKeyFile     = pkiDir + "/server.key"
	adminCertFile     = pkiDir + "/admin.crt"
	adminKeyFile      = pkiDir + "/admin.key"
	serviceAccountKey = pkiDir + "/service-account.key"
)

const certificateLifetime = 10 * 365 * 24 * time.Hour

// writeCertificates writes Dir/pki unless an earlier start did.
func (c *Cluster) writeCertificates() error {
	// This file is written last: if it exists, all do.
	if _, err := os.Stat(filepath.Join(c.dir, serviceAccountKey)); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read certificates: %w", err)
	}
	files, err := makeCertificates(time.Now(), net.ParseIP(c.opts.BindAddress))
	if err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(c.dir, pkiDir), 0o700); err != nil {
		return fmt.Errorf("write certificates: %w", err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(c.dir, f.name), f.data, 0o600); err != nil {
			return fmt.Errorf("write certificates: %w", err)
		}
	}
	return nil
}

type pkiFile struct {
	name string
	data []byte
}

// makeCertificates creates an authority, a server certificate for address and the loopback
// ones, a client certificate for an administrator and a key for ServiceAccount tokens.
func makeCertificates(now time.Time, address net.IP) ([]pkiFile, error) {
	authority, err := NewAuthority("controlplane-ca")
	if err != nil {
		return nil, err
	}
	ca := authority.pair
	server, err := issue(ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: apiServerName},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, address},
	}, now)
	if err != nil {
		return nil, err
	}
	admin, err := issue(ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, now)
	if err != nil {
		return nil, err
	}
	tokenKey, err := NewTokenKey()
	if err != nil {
		return nil, err
	}
	return []pkiFile{
		{caCertFile, ca.certPEM},
		{serverCertFile, server.certPEM}, {serverKeyFile, server.keyPEM},
		{adminCertFile, admin.certPEM}, {adminKeyFile, admin.keyPEM},
		{serviceAccountKey, tokenKey},
	}, nil
}

type keyPair struct {
	cert            *x509.Certificate
	key             *ecdsa.PrivateKey
	certPEM, keyPEM []byte
}

// issue signs template with by, or with its own key if by is nil.
func issue(by *keyPair, template *x509.Certificate, now time.Time) (*keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = now.Add(-time.Hour)
	template.NotAfter = now.Add(certificateLifetime)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	keyData, err := keyPEM(key)
	if err != nil {
		return nil, err
	}
	certData := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &keyPair{cert: cert, key: key, certPEM: certData, keyPEM: keyData}, nil
}

// keyPEM uses the form that kube-apiserver also accepts for a public key.
func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
