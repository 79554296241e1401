package world

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// canon writes values in a form that is equal for two worlds that behave the same. It walks
// everything by reflection, so that only what left() names is left out. UIDs, resourceVersions
// and times are kept separately as tokens: of those of one object only the order matters, and
// of times the distance from now. Both can be computed only when all tokens are known.
type canon struct {
	buf    []byte
	tokens []token
	// met are the pointers walked, numbered in order.
	met map[met]int
	*known
	// others are nodes whose entries are left out.
	others []string
}

type met struct {
	at unsafe.Pointer
	of reflect.Type
}

// known is what is known about a world's objects.
type known struct {
	// objects are those digested earlier, and the CiliumNodes in the ledger. They never change.
	objects map[unsafe.Pointer]digest
	// of names the object that has a UID or resourceVersion.
	of   map[token]string
	read [kindCount]int // how many versions of the history are in it
	but  []string       // fields left out, as type.field
}

// learn reads the new part of the history.
func (k *known) learn(a *API) {
	for kind, history := range a.history {
		for _, v := range history[k.read[kind]:] {
			name := v.Kind.String() + " " + v.Key
			k.of[token{kind: versionToken, value: int64(v.Version)}] = name
			if v.New != nil {
				number, _ := strings.CutPrefix(string(v.New.GetUID()), "uid-")
				n, _ := strconv.ParseInt(number, 10, 64)
				k.of[token{kind: uidToken, value: n}] = name
			}
		}
		k.read[kind] = len(history)
	}
}

// token is a time, or the UID or a resourceVersion of an object.
type token struct {
	kind  byte
	of    string // the object
	value int64
}

const (
	uidToken     = 'u'
	versionToken = 'v'
	timeToken    = 't'
)

// digest is a value written earlier, with its tokens.
type digest struct {
	sum    [sha256.Size]byte
	tokens []token
}

func newCanon(k *known) *canon { return &canon{met: map[met]int{}, known: k} }

func (c *canon) digest() digest { return digest{sha256.Sum256(c.buf), c.tokens} }

func (c *canon) put(d digest) {
	c.buf = append(c.buf, d.sum[:]...)
	c.tokens = append(c.tokens, d.tokens...)
}

func (c *canon) number(n uint64) { c.buf = binary.AppendUvarint(c.buf, n) }

func (c *canon) token(kind byte, value int64) {
	t := token{kind: kind, value: value}
	t.of = c.of[t]
	c.buf = append(append(c.buf, kind), t.of...)
	c.tokens = append(c.tokens, t)
}

func (c *canon) text(s string) {
	if number, ok := strings.CutPrefix(s, "uid-"); ok {
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			c.token(uidToken, n)
			return
		}
	}
	c.number(uint64(len(s)) + 1)
	c.buf = append(c.buf, s...)
}

// left reports types that no decision depends on, or that are walked elsewhere.
func left(t reflect.Type) bool {
	switch t.PkgPath() {
	case "sync", "github.com/prometheus/client_golang/prometheus":
		return true
	}
	switch t.String() {
	case "node.Metrics", "pool.Metrics", "metrics.Shared", "event.Recorder", "invariant.Stats", // for people only
		"world.World", "world.API", "world.Operator", "world.queue", // by World.Hash
		"agent.StoreOptions": // the world's own
		return true
	}
	return false
}

// versions reports whether a field with this name holds resourceVersions.
func versions(field string) bool {
	switch field {
	case "ResourceVersion", "version", "Version":
		return true
	}
	return false
}

func (c *canon) walk(v reflect.Value) { c.walkAs(v, false) }

func (c *canon) any(x any) { c.walk(reflect.ValueOf(x)) }

// walkAs writes a value. With version, numbers in it are resourceVersions.
func (c *canon) walkAs(v reflect.Value, version bool) {
	switch v.Kind() {
	case reflect.Invalid, reflect.Func, reflect.Chan, reflect.UnsafePointer:
	case reflect.Interface:
		if !v.IsNil() && !left(v.Elem().Type()) {
			c.text(v.Elem().Type().String())
			c.walkAs(v.Elem(), version)
		}
	case reflect.Pointer:
		c.pointer(v)
	case reflect.Slice, reflect.Array:
		c.number(uint64(v.Len()) + 1)
		for i := range v.Len() {
			c.walkAs(v.Index(i), version)
		}
	case reflect.Map:
		c.mapped(v, version)
	case reflect.Struct:
		c.fields(v)
	case reflect.String:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil && version {
			c.token(versionToken, n)
		} else {
			c.text(v.String())
		}
	default:
		c.plain(v, version)
	}
}

// plain writes a number or a bool.
func (c *canon) plain(v reflect.Value, version bool) {
	switch {
	case v.Kind() == reflect.Bool:
		c.text(strconv.FormatBool(v.Bool()))
	case v.CanInt():
		c.buf = binary.AppendVarint(c.buf, v.Int())
	case v.CanUint() && version:
		c.token(versionToken, int64(v.Uint()))
	case v.CanUint():
		c.number(v.Uint())
	case v.CanFloat():
		c.text(strconv.FormatFloat(v.Float(), 'g', -1, 64))
	default:
		panic("cannot be compared: " + v.Type().String())
	}
}

func (c *canon) pointer(v reflect.Value) {
	at, of := v.UnsafePointer(), v.Type()
	if at == nil || left(of.Elem()) {
		c.number(0)
		return
	}
	if of.Implements(reflect.TypeFor[client.Object]()) {
		c.object(v)
		return
	}
	if of == reflect.TypeFor[*ciliumnode.Stored]() {
		c.stored((*ciliumnode.Stored)(at), v.Elem().FieldByName("rest").Bytes())
		return
	}
	if n, again := c.met[met{at, of}]; again {
		c.number(uint64(n) + 2)
		return
	}
	c.met[met{at, of}] = len(c.met)
	c.number(1)
	c.walk(v.Elem())
}

// object writes an API object, whoever holds it.
func (c *canon) object(v reflect.Value) {
	d, known := c.objects[v.UnsafePointer()]
	if !known {
		one := newCanon(c.known)
		one.fields(v.Elem())
		d = one.digest()
		c.objects[v.UnsafePointer()] = d
	}
	c.put(d)
}

func (c *canon) fields(v reflect.Value) {
	switch t := v.Type(); {
	case left(t):
		return
	case t == reflect.TypeFor[time.Time]():
		c.instant(v)
		return
	case t == reflect.TypeFor[netip.Addr](): // netip.Addr, Go 1.26
		c.number(v.Field(0).Field(0).Uint())
		c.number(v.Field(0).Field(1).Uint())
		if zone := v.Field(1).Field(0); !zone.IsNil() {
			c.each(zone.Elem())
		}
		return
	case t.String() == "ipalloc.trie":
		c.trie(v)
		return
	case t.String() == "state.heldPod":
		c.heldPod(v)
		return
	}
	c.each(v)
}

// each writes the fields of a struct except the named ones.
func (c *canon) each(v reflect.Value, but ...string) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if f.IsZero() || follows(v.Type(), name) || slices.Contains(but, name) || slices.Contains(c.but, v.Type().String()+"."+name) || f.Kind() == reflect.Map && c.nothing(f) {
			continue
		}
		c.number(uint64(i) + 1)
		others := c.others
		if ofAll(v.Type(), name) {
			c.others = nil
		}
		c.walkAs(f, versions(name))
		c.others = others
	}
	c.number(0)
}

// nothing reports whether a map has only entries of other nodes.
func (c *canon) nothing(v reflect.Value) bool {
	for iter := v.MapRange(); iter.Next(); {
		if !c.leaves(iter.Key()) {
			return false
		}
	}
	return len(c.others) > 0
}

func (c *canon) leaves(key reflect.Value) bool {
	return key.Kind() == reflect.String && slices.Contains(c.others, key.String())
}

// ofAll reports maps by node that a reconcile of one node reads entirely.
func ofAll(t reflect.Type, field string) bool {
	return t.String() == "state.Ledger" && field == "byNode" || t.String() == "state.ciliumNodes" && field == "foreign"
}

// follows reports fields that follow from others, except for an order that nothing depends on.
func follows(t reflect.Type, field string) bool {
	return t.String() == "state.Ledger" && field == "byPool" || t.String() == "state.heldBlock" && field == "inPool"
}

// instant writes a time, whose fields (time.Time, Go 1.26) may be unexported.
func (c *canon) instant(v reflect.Value) {
	const monotonic = 1 << 63
	wall, seconds := v.Field(0).Uint(), v.Field(1).Int()
	switch {
	case wall&monotonic != 0:
		panic("a time of the real clock")
	case wall == 0 && seconds == 0:
		c.number(0)
	default:
		const from = 63_900_000_000 // of the world's year, so that nanoseconds fit
		c.token(timeToken, (seconds-from)*int64(time.Second)+int64(wall))
	}
}

// trie writes a trie of pkg/ipalloc without positions in its arenas, which depend only on the
// order of insertion.
func (c *canon) trie(v reflect.Value) {
	if reserved := v.FieldByName("reserved"); reserved.Len() > 0 {
		c.walk(reserved)
	} else {
		c.number(0)
	}
	c.trieNode(v, v.FieldByName("root"))
}

func (c *canon) trieNode(v, n reflect.Value) {
	for _, name := range []string{"hi", "lo", "bits", "held", "reserved", "below", "free"} {
		c.number(n.FieldByName(name).Uint())
	}
	held, owner := n.FieldByName("held").Uint(), n.FieldByName("owner").Uint()
	several := bits.OnesCount64(held) > 1
	for ; held != 0; held &= held - 1 {
		id := owner
		if several {
			id = place(v.FieldByName("several"), owner).Index(bits.TrailingZeros64(held)).Uint()
		}
		c.walk(place(v.FieldByName("owners"), id))
	}
	for below := n.FieldByName("below").Uint(); below != 0; below &= below - 1 {
		slots := place(v.FieldByName("slots"), n.FieldByName("slots").Uint())
		child := slots.FieldByName("nodes").Index(bits.TrailingZeros64(below)).Uint()
		c.trieNode(v, place(v.FieldByName("nodes"), child))
	}
}

// place returns what an arena of pkg/ipalloc holds at an index.
func place(arena reflect.Value, at uint64) reflect.Value {
	chunks := arena.FieldByName("chunks")
	size := chunks.Type().Elem().Elem().Len()
	return chunks.Index(int(at) / size).Elem().Index(int(at) % size)
}

func (c *canon) mapped(v reflect.Value, version bool) {
	if v.IsNil() {
		c.number(0)
		return
	}
	type entry struct {
		key   *canon
		value reflect.Value
	}
	var entries []entry
	for iter := v.MapRange(); iter.Next(); {
		if c.leaves(iter.Key()) {
			continue
		}
		key := newCanon(c.known)
		key.walk(iter.Key())
		entries = append(entries, entry{key, iter.Value()})
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(bytes.Compare(a.key.buf, b.key.buf), slices.CompareFunc(a.key.tokens, b.key.tokens, compareTokens))
	})
	c.number(uint64(len(entries)) + 1)
	for _, e := range entries {
		c.buf = append(c.buf, e.key.buf...)
		c.tokens = append(c.tokens, e.key.tokens...)
		c.walkAs(e.value, version)
	}
}

func compareTokens(a, b token) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.of, b.of), cmp.Compare(a.value, b.value))
}

// sum returns the hash of everything written, with each token replaced by its rank among those
// of its object, or by its distance from now.
func (c *canon) sum(now time.Time) [sha256.Size]byte {
	at := newCanon(c.known)
	at.instant(reflect.ValueOf(now))
	ranks := map[token]uint64{}
	sorted := slices.Clone(c.tokens)
	slices.SortFunc(sorted, compareTokens)
	for i, t := range sorted {
		switch {
		case i == 0 || sorted[i-1].kind != t.kind || sorted[i-1].of != t.of:
			ranks[t] = 1
		default:
			ranks[t] = ranks[sorted[i-1]]
			if sorted[i-1] != t {
				ranks[t]++
			}
		}
	}
	for _, t := range c.tokens {
		if t.kind == timeToken {
			c.buf = binary.AppendVarint(c.buf, t.value-at.tokens[0].value)
		} else {
			c.number(ranks[t])
		}
	}
	return sha256.Sum256(c.buf)
}
