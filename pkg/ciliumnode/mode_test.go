package ciliumnode

import (
	"testing"
)

func TestParseMode(t *testing.T) {
	tests := map[string]struct {
		want    Mode
		wantErr string
	}{
		"crd":          {want: CRD},
		"multi-pool":   {want: MultiPool},
		"kubernetes":   {want: Kubernetes},
		"":             {wantErr: "must be one of crd, multi-pool, kubernetes"},
		"cluster-pool": {wantErr: "must be one of crd, multi-pool, kubernetes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseMode(name)
			if message := errorOf(err); got != test.want || message != test.wantErr {
				t.Errorf("got %q, %q; want %q, %q", got, message, test.want, test.wantErr)
			}
		})
	}
}

func errorOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestZeroModeIsCRD(t *testing.T) {
	var zero Mode
	if v := zero.View(node([]string{"10.0.0.1"})); v.BlockDemand != nil || len(v.Pool) != 1 {
		t.Errorf("view is %+v, want that of crd mode", v)
	}
}
