package ciliumnode

import (
	"bytes"
	"maps"
	"strings"
	"unicode/utf8"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// Decode decodes a CiliumNode from JSON, its addresses, which are most of it, without
// reflection. It leaves out each value that the API server accepts and that Cilium's type
// cannot hold, such as the podCIDR 10.020.0.0/24; NewView reports it as a BadField.
func Decode(data []byte, cn *ciliumv2.CiliumNode) error {
	err := decodeWhole(data, cn)
	if err == nil {
		delete(cn.Annotations, badFields)
		return nil
	}
	return decodeReadable(data, cn, err)
}

// DecodeList decodes a CiliumNodeList from JSON as Decode does.
func DecodeList(data []byte, list *ciliumv2.CiliumNodeList) error {
	var d struct {
		metav1.TypeMeta
		metav1.ListMeta `json:"metadata"`

		Items []encoded `json:"items"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return err
	}
	*list = ciliumv2.CiliumNodeList{TypeMeta: d.TypeMeta, ListMeta: d.ListMeta, Items: make([]ciliumv2.CiliumNode, len(d.Items))}
	for i, item := range d.Items {
		if err := Decode(item, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func decodeWhole(data []byte, cn *ciliumv2.CiliumNode) error {
	var d decoded
	if err := json.Unmarshal(data, &d); err != nil {
		return err
	}
	*cn = ciliumv2.CiliumNode{TypeMeta: d.TypeMeta, ObjectMeta: d.ObjectMeta, Spec: d.Spec.NodeSpec, Status: d.Status.NodeStatus}
	cn.Spec.IPAM, cn.Status.IPAM = d.Spec.IPAM.IPAMSpec, d.Status.IPAM.IPAMStatus
	cn.Spec.IPAM.Pool, cn.Status.IPAM.Used = ipamtypes.AllocationMap(d.Spec.IPAM.Pool), ipamtypes.AllocationMap(d.Status.IPAM.Used)
	return nil
}

// decoded is a CiliumNode whose addresses are decoded by addressMap. Its fields hide embedded
// ones with the same name.
type decoded struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		ciliumv2.NodeSpec

		IPAM struct {
			ipamtypes.IPAMSpec

			Pool addressMap `json:"pool"`
		} `json:"ipam"`
	} `json:"spec"`
	Status struct {
		ciliumv2.NodeStatus

		IPAM struct {
			ipamtypes.IPAMStatus

			Used addressMap `json:"used"`
		} `json:"ipam"`
	} `json:"status"`
}

// addressMap is spec.ipam.pool or status.ipam.used.
type addressMap ipamtypes.AllocationMap

// UnmarshalJSON reads the form that the API server writes, and leaves any other to reflection.
func (m *addressMap) UnmarshalJSON(data []byte) error {
	read := make(ipamtypes.AllocationMap, bytes.Count(data, []byte(`":{`)))
	switch {
	case !utf8.Valid(data) || !readAddresses(string(data), read):
		return json.Unmarshal(data, (*ipamtypes.AllocationMap)(m))
	case *m == nil:
		*m = addressMap(read)
	default: // the field is repeated
		maps.Copy(*m, read)
	}
	return nil
}

// readAddresses reads {"10.0.0.1":{},"10.0.0.2":{"owner":"default/web-0"}}. It reports whether
// all of data has that form.
func readAddresses(data string, into ipamtypes.AllocationMap) bool {
	if data == "{}" {
		return true
	}
	for before := `{"`; data != "}"; before = `,"` {
		rest, ok := strings.CutPrefix(data, before)
		key, rest, found := strings.Cut(rest, `":{`)
		if !ok || !found || strings.ContainsAny(key, `"\`) {
			return false
		}
		var ip ipamtypes.AllocationIP
		if owned, ok := strings.CutPrefix(rest, `"owner":"`); ok {
			ip.Owner, rest, found = strings.Cut(owned, `"`)
			if !found || strings.Contains(ip.Owner, `\`) {
				return false
			}
			ip.Owner = strings.Clone(ip.Owner) // it is kept, and would keep all of data
		}
		if data, ok = strings.CutPrefix(rest, "}"); !ok {
			return false
		}
		into[key] = ip
	}
	return true
}
