package ciliumnode

import (
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// Decode decodes a CiliumNode from JSON. It leaves out each value that the API server accepts and
// that Cilium's type cannot hold, such as the podCIDR 10.020.0.0/24; NewView reports it as a
// BadField.
func Decode(data []byte, cn *ciliumv2.CiliumNode) error {
	*cn = ciliumv2.CiliumNode{} // or maps would keep keys that data lacks
	err := json.Unmarshal(data, cn)
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
