package ciliumnode

import (
	"net/netip"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/util/json"
)

// decodeBoth decodes with Decode and with reflection, and fails if the results differ.
func decodeBoth(t *testing.T, data string) *ciliumv2.CiliumNode {
	t.Helper()
	want, got := &ciliumv2.CiliumNode{}, &ciliumv2.CiliumNode{}
	wantErr, err := json.Unmarshal([]byte(data), want), Decode([]byte(data), got)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%s: %v, want %v", data, err, wantErr)
	}
	if err != nil {
		return nil
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("%s: -reflection +Decode:\n%s", data, diff)
	}
	return got
}

func TestDecode(t *testing.T) {
	tests := map[string]struct {
		pool string
		fast bool
	}{
		"none":                  {`{}`, true},
		"one":                   {`{"10.0.0.1":{}}`, true},
		"several":               {`{"10.0.0.1":{},"10.0.0.2":{"owner":"default/web-0"},"fd00::1":{}}`, true},
		"no addresses":          {`{"":{},"x y":{"owner":""}}`, true},
		"the same key twice":    {`{"a":{"owner":"b"},"a":{}}`, true},
		"other letters":         {`{"é":{"owner":"ü"}}`, true},
		"null":                  {`null`, false},
		"null in it":            {`{"a":null}`, false},
		"spaces":                {`{ "a" : { "owner" : "b" } }`, false},
		"escapes in a key":      {`{"\u0061":{}}`, false},
		"a quote in a key":      {`{"a\":{":{}}`, false},
		"escapes in an owner":   {`{"a":{"owner":"\"b\\"}}`, false},
		"a resource":            {`{"a":{"owner":"b","resource":"r"}}`, false},
		"a resource first":      {`{"a":{"resource":"r"},"b":{}}`, false},
		"a field too many":      {`{"a":{"owner":"b","more":{"owner":"c"}}}`, false},
		"another type of owner": {`{"a":{"owner":7}}`, false},
		"another type of entry": {`{"a":7}`, false},
		"a list":                {`[]`, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			decodeBoth(t, `{"metadata":{"name":"n","labels":{"a":"b"}},"spec":{"bootid":"x","ipam":{"podCIDRs":["10.0.0.0/27"],"pool":`+tc.pool+`,"min-allocate":3}},`+
				`"status":{"ipam":{"used":`+tc.pool+`,"release-ips":{"10.0.0.9":"released"}},"eni":{"enis":{}}}}`)
			if fast := readAddresses(tc.pool, ipamtypes.AllocationMap{}); fast != tc.fast {
				t.Errorf("read without reflection: %v", fast)
			}
		})
	}
}

// A repeated field adds to the map, as it does with reflection.
func TestDecodeRepeatedField(t *testing.T) {
	for _, again := range []string{`{}`, `{"b":{"owner":"y"}}`, `{"a":{}}`, `{ "b":{}}`, `null`} {
		cn := decodeBoth(t, `{"spec":{"ipam":{"pool":{"a":{"owner":"x"}},"pool":`+again+`}}}`)
		if want := again != "null"; (len(cn.Spec.IPAM.Pool) > 0) != want {
			t.Errorf("%s: pool is %v", again, cn.Spec.IPAM.Pool)
		}
	}
}

// Whatever a CiliumNode contains, Decode and reflection read the same.
func FuzzDecode(f *testing.F) {
	f.Add(`{"10.0.0.1":{},"10.0.0.2":{"owner":"a"}}`)
	f.Add(`{"a":{"owner":"\""},"b":{}}`)
	f.Add("{\"a\xff\":{\"owner\":\"\xff\"}}")
	f.Add(`{"a":{},"a":{"owner":"x","resource":"y"}}`)
	f.Add(`{"a":{}},"pool":{"b":{}}`)
	f.Fuzz(func(t *testing.T, pool string) {
		decodeBoth(t, `{"spec":{"ipam":{"pool":`+pool+`}},"status":{"ipam":{"used":`+pool+`}}}`)
	})
}
