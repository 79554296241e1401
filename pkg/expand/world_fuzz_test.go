package expand

import (
	"hash/fnv"
	"testing"
)

// thrown returns dice that throw a fuzzer's bytes, and then continue at random, seeded with
// those bytes.
func thrown(data []byte) dice {
	hash := fnv.New64a()
	_, _ = hash.Write(data)
	bytes, after := bytesDice(data), seeded(hash.Sum64())
	left := len(data)
	return func(n int) int {
		if left--; left >= 0 {
			return bytes(n)
		}
		return after(n)
	}
}

func addTapes(f *testing.F, length int) {
	for seed := range uint64(16) {
		d := seeded(seed)
		data := make([]byte, length)
		for i := range data {
			data[i] = byte(d(256))
		}
		f.Add(data)
	}
}

// FuzzHostileWorld runs TestHostileWorld from any state and through any course of events.
func FuzzHostileWorld(f *testing.F) {
	addTapes(f, 1500)
	f.Fuzz(func(t *testing.T, data []byte) {
		h := newHostile(t, thrown(data))
		for range 250 {
			if h.step(); t.Failed() {
				return
			}
		}
	})
}

// FuzzConverges runs TestConverges from any state.
func FuzzConverges(f *testing.F) {
	addTapes(f, 600)
	f.Fuzz(func(t *testing.T, data []byte) {
		newWorld(t, thrown(data)).settle(len(data)%2 == 0)
	})
}
