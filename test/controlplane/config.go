package controlplane

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// unlimited turns client-go's own rate limit off.
const unlimited = -1

// tokenLifetime is the lifetime of a ConfigFor token: longer than any test or demo.
const tokenLifetime = 24 * time.Hour

// Config returns a copy of the administrator's configuration (system:masters),
// without a client-side rate limit.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// ConfigFor returns a configuration with a token of a ServiceAccount, which must exist, valid
// for a day. It has exactly the rights that RBAC grants.
func (c *Cluster) ConfigFor(ctx context.Context, namespace, name string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("token for %s/%s: %w", namespace, name, err)
	}
	seconds := int64(tokenLifetime / time.Second)
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token for %s/%s: %w", namespace, name, err)
	}
	cfg := rest.AnonymousClientConfig(c.config)
	cfg.BearerToken = token.Status.Token
	return cfg, nil
}

// WriteKubeconfig writes the administrator's kubeconfig, readable by its owner only.
// Dir/kubeconfig is such a file, too.
func (c *Cluster) WriteKubeconfig(path string) error { return WriteKubeconfig(path, c.config) }

// WriteKubeconfig writes cfg, such as one from ConfigFor, as a kubeconfig that needs no other
// file.
func WriteKubeconfig(path string, cfg *rest.Config) error {
	const name = "controlplane"
	kubeconfig := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			name: {Server: cfg.Host, CertificateAuthorityData: cfg.CAData},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			name: {ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken},
		},
		Contexts: map[string]*clientcmdapi.Context{
			name: {Cluster: name, AuthInfo: name},
		},
		CurrentContext: name,
	}
	if err := clientcmd.WriteToFile(kubeconfig, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

func readKubeconfig(path string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	cfg.QPS = unlimited
	return cfg, nil
}

// adminConfig returns the administrator's configuration for an API server on port.
func (c *Cluster) adminConfig(port int) (*rest.Config, error) {
	cfg := &rest.Config{
		Host: "https://" + net.JoinHostPort(c.opts.BindAddress, strconv.Itoa(port)),
		QPS:  unlimited,
	}
	for file, into := range map[string]*[]byte{
		caCertFile:    &cfg.CAData,
		adminCertFile: &cfg.CertData,
		adminKeyFile:  &cfg.KeyData,
	} {
		data, err := os.ReadFile(filepath.Join(c.dir, file))
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		*into = data
	}
	return cfg, nil
}
