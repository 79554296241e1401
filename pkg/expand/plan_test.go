package expand

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Without drops the addresses of blocks from the fields that release them, and WithoutMarks the fields that mark, park or
// delete. Both keep all others, and a new field needs a place here.
func TestPlanWithout(t *testing.T) {
	const kept = "Node Family Forget Undrain Drain RecordClosed Clear Probe Claim Publish Assign Unpark CoolDown Demand Capacity ServedElsewhere Shortage Obstacles RequeueAt"
	fields := map[string][2]bool{ // left as they are by Without, and by WithoutMarks
		"Close": {false, false}, "Mark": {false, false}, "Retire": {false, false}, "Remove": {false, true}, "Park": {true, false}, "Delete": {true, false},
	}
	for _, field := range strings.Fields(kept) {
		fields[field] = [2]bool{true, true}
	}
	var plan Plan
	setAll(reflect.ValueOf(&plan).Elem())
	block := netip.PrefixFrom(anyAddr, 31)
	for i, changed := range []Plan{plan.Without([]netip.Prefix{block}), plan.WithoutMarks()} {
		for j := range reflect.TypeFor[Plan]().NumField() {
			field := reflect.TypeFor[Plan]().Field(j).Name
			before, after := reflect.ValueOf(plan).Field(j), reflect.ValueOf(changed).Field(j)
			want, listed := fields[field]
			if got := reflect.DeepEqual(before.Interface(), after.Interface()); got != want[i] || !listed {
				t.Errorf("%s: %v became %v, listed: %t", field, before, after, listed)
			}
			if empty := after.IsZero() || after.Kind() == reflect.Slice && after.Len() == 0; !want[i] && !empty {
				t.Errorf("%s: %v remains", field, after)
			}
		}
	}
}

var anyAddr = netip.MustParseAddr("10.0.0.1")

// setAll sets a value, and all values in it, to others than zero.
func setAll(v reflect.Value) {
	switch v.Interface().(type) {
	case netip.Addr:
		v.Set(reflect.ValueOf(anyAddr))
		return
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.PrefixFrom(anyAddr, 32)))
		return
	case time.Time:
		v.Set(reflect.ValueOf(noon))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			setAll(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		setAll(v.Index(0))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	default:
		panic(v.Type())
	}
}
