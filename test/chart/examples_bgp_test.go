package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// The objects of Cilium's BGP control plane have no field unknown to Cilium, and refer to each
// other.
func TestExamplesOfCiliumBGP(t *testing.T) {
	files, err := filepath.Glob(examples + "/bgp/cilium-*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v: %v", files, err)
	}
	var peer ciliumv2.CiliumBGPPeerConfig
	var adverts []ciliumv2.CiliumBGPAdvertisement
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(data), "\n---\n") {
			switch {
			case strings.Contains(doc, "\nkind: CiliumBGPClusterConfig\n"):
				err = yaml.UnmarshalStrict([]byte(doc), &ciliumv2.CiliumBGPClusterConfig{})
			case strings.Contains(doc, "\nkind: CiliumBGPPeerConfig\n"):
				err = yaml.UnmarshalStrict([]byte(doc), &peer)
			default:
				advert := ciliumv2.CiliumBGPAdvertisement{}
				err = yaml.UnmarshalStrict([]byte(doc), &advert)
				adverts = append(adverts, advert)
			}
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if len(adverts) != 2 || len(peer.Spec.Families) != 1 {
		t.Fatalf("%d advertisements, families %v", len(adverts), peer.Spec.Families)
	}
	for _, a := range adverts {
		for key, value := range peer.Spec.Families[0].Advertisements.MatchLabels {
			if a.Labels[key] != value {
				t.Errorf("the peers do not select advertisement %v: labels %v", a.Spec.Advertisements, a.Labels)
			}
		}
	}
}

// Cilium announces only blocks of the size in the CiliumPodIPPool (v1.20.1,
// pkg/bgp/manager/reconciler/pod_ip_pool.go). So all pools that serve one have the same block
// size.
func TestExamplePoolsAreOfOneSize(t *testing.T) {
	size := int32(0)
	for _, o := range readObjects(t, examples+"/pools.yaml") {
		var pool v1alpha1.PodIPPool
		data, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		harness.Must(t, yaml.Unmarshal(data, &pool))
		if size != 0 && pool.Spec.IPv4.BlockSize != size {
			t.Errorf("pool %s has blocks of /%d, another one of /%d: Cilium's BGP would announce none of one", pool.Name, pool.Spec.IPv4.BlockSize, size)
		}
		size = pool.Spec.IPv4.BlockSize
	}
}
