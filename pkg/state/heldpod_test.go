package state

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// A UID is what it was, however it is packed, and no two are packed alike.
func TestPackUID(t *testing.T) {
	const uuid = "5b4a3f0c-1d2e-4000-8000-0123456789ab"
	packed := map[heldPod]types.UID{}
	for _, uid := range []types.UID{
		"", "1", uuid, "5B4A3F0C-1D2E-4000-8000-0123456789AB", "{" + uuid + "}", "urn:uuid:" + uuid, "5b4a3f0c1d2e400080000123456789ab",
		types.UID("\x5b\x4a\x3f\x0c\x1d\x2e\x40\x00\x80\x00\x01\x23\x45\x67\x89\xab"), // the bytes of uuid
		"00000000-0000-0000-0000-000000000000",
	} {
		text, isUUID := packUID(uid)
		h := heldPod{text: text + "default/a", nameAt: uint16(len(text)), uuid: isUUID}
		if got := h.uid(); got != uid {
			t.Errorf("%q is %q afterwards", uid, got)
		}
		if other, known := packed[h]; known {
			t.Errorf("%q and %q are packed alike", uid, other)
		}
		packed[h] = uid
		if size := len(text); uid == uuid && size != 16 {
			t.Errorf("a UUID takes %d bytes", size)
		}
	}
}
