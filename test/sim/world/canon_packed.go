package world

import (
	"encoding/json"
	"reflect"
	"time"
	"unsafe"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// What the operator packs to save memory is unpacked, for the UIDs and times in it.

// stored writes a CiliumNode in memory, which never changes, in unpacked form.
func (c *canon) stored(cn *ciliumnode.Stored, packed []byte) {
	d, known := c.objects[unsafe.Pointer(cn)]
	if !known {
		var rest struct {
			Labels, Annotations map[string]string
			Owners              []metav1.OwnerReference
			Spec                ciliumv2.NodeSpec
		}
		if err := json.Unmarshal(packed, &rest); err != nil && len(packed) > 0 {
			panic(err)
		}
		one := newCanon(c.known)
		one.any(*cn.View())
		one.any(rest)
		d = one.digest()
		c.objects[unsafe.Pointer(cn)] = d
	}
	c.put(d)
}

// heldPod writes a pod in memory, whose UID, name and addresses are packed into one string.
func (c *canon) heldPod(v reflect.Value) {
	text, name, ips := v.FieldByName("text").String(), v.FieldByName("nameAt").Uint(), v.FieldByName("ipsAt").Uint()
	for _, part := range []string{text[:name], text[name:ips], text[ips:]} {
		c.text(part)
	}
	c.instant(reflect.ValueOf(time.UnixMicro(v.FieldByName("seen").Int())))
	if created := v.FieldByName("created").Uint(); created != 0 {
		c.instant(reflect.ValueOf(time.Unix(int64(created), 0)))
	}
	c.each(v, "text", "nameAt", "ipsAt", "seen", "created")
}
