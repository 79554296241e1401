package controller

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// ownPods lists a Pod with these tolerations to requests for the operator's own.
type ownPods struct {
	client.Reader
	tolerations []corev1.Toleration
}

func (p ownPods) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	if o.Namespace != "kube-system" || o.FieldSelector.String() != "metadata.name=op-1" {
		return errors.New("not the operator's Pod")
	}
	list.(*corev1.PodList).Items = []corev1.Pod{{Spec: corev1.PodSpec{Tolerations: p.tolerations}}}
	return nil
}

// The operator sets no taint that keeps its own Pod off Nodes, however it was deployed.
func TestOwnPodToleratesItsTaint(t *testing.T) {
	claims := `{"kubernetes.io":{"namespace":"kube-system","pod":{"name":"op-1","uid":"u"}}}`
	token := "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	inPod := &rest.Config{BearerTokenFile: file}
	exists := func(key string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	}
	for name, test := range map[string]struct {
		config      *rest.Config
		tolerations []corev1.Toleration
		may         bool
		logged      string
	}{
		"both":             {inPod, []corev1.Toleration{exists("short", ""), exists("start", "")}, true, ""},
		"the effect":       {inPod, []corev1.Toleration{exists("short", corev1.TaintEffectNoSchedule), exists("start", "")}, true, ""},
		"everything":       {inPod, []corev1.Toleration{exists("", "")}, true, ""},
		"another effect":   {inPod, []corev1.Toleration{exists("short", corev1.TaintEffectNoExecute), exists("start", "")}, false, "{key: short,"},
		"another value":    {inPod, []corev1.Toleration{{Key: "short", Value: "x"}, exists("start", "")}, false, "{key: short,"},
		"the startup only": {inPod, []corev1.Toleration{exists("short", "")}, true, "{key: start,"},
		"nothing":          {inPod, nil, false, "{key: short,"},
		"token inline":     {&rest.Config{BearerToken: token}, nil, false, "{key: short,"},
		"no Pod":           {&rest.Config{BearerToken: "opaque"}, nil, true, ""},
		"another token":    {&rest.Config{BearerToken: "a.b.c"}, nil, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var logged []string
			ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}))
			may := podOf(test.config, ownPods{tolerations: test.tolerations}).tolerates(ctx, "short", []string{"start"})
			all := strings.Join(logged, "\n")
			if may != test.may || (test.logged == "") != (all == "") || !strings.Contains(all, test.logged) {
				t.Errorf("may taint: %v, want %v; logged %q, want %q", may, test.may, all, test.logged)
			}
		})
	}
}
