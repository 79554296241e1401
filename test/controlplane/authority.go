package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"time"
)

// Authority issues certificates, for control planes that this package does not
// start.
type Authority struct{ pair *keyPair }

// KeyPair is a certificate or a public key with its private key, in PEM.
type KeyPair struct{ Cert, Key []byte }

// NewAuthority creates an authority with its own key.
func NewAuthority(name string) (*Authority, error) {
	pair, err := issue(nil, &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}, time.Now())
	if err != nil {
		return nil, err
	}
	return &Authority{pair: pair}, nil
}

// KeyPair returns the authority's own key pair.
func (a *Authority) KeyPair() KeyPair { return KeyPair{a.pair.certPEM, a.pair.keyPEM} }

// Issue signs template with a new key, and sets its validity.
func (a *Authority) Issue(template *x509.Certificate) (KeyPair, error) {
	pair, err := issue(a.pair, template, time.Now())
	if err != nil {
		return KeyPair{}, err
	}
	return KeyPair{pair.certPEM, pair.keyPEM}, nil
}

// NewTokenKey creates a key for ServiceAccount tokens.
func NewTokenKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return keyPEM(key)
}
