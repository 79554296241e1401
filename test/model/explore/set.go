package explore

import "hash/maphash"

const (
	chunkBits = 16
	chunkSize = 1 << chunkBits
)

// set numbers values in the order of their addition. It is an open-addressing hash table
// of indexes into a list that grows without being copied: four to eight bytes for each value
// in addition to the value itself.
type set[S comparable] struct {
	seed   maphash.Seed
	chunks [][]S
	table  []uint32 // number + 1; 0: free
	n      int
}

func newSet[S comparable]() *set[S] {
	return &set[S]{seed: maphash.MakeSeed(), table: make([]uint32, 1<<12)}
}

func (t *set[S]) len() int { return t.n }

func (t *set[S]) at(i uint32) S { return t.chunks[i>>chunkBits][i&(chunkSize-1)] }

// add returns the number of s, and whether it is new.
func (t *set[S]) add(s S) (number uint32, fresh bool) {
	if t.n >= len(t.table)/4*3 {
		t.grow()
	}
	slot := t.slot(s)
	if found := t.table[slot]; found != 0 {
		return found - 1, false
	}
	if t.n%chunkSize == 0 {
		t.chunks = append(t.chunks, make([]S, 0, chunkSize))
	}
	last := len(t.chunks) - 1
	t.chunks[last] = append(t.chunks[last], s)
	t.n++
	t.table[slot] = uint32(t.n)
	return uint32(t.n - 1), true
}

// find returns the number of s, and whether it is known.
func (t *set[S]) find(s S) (number uint32, known bool) {
	found := t.table[t.slot(s)]
	return found - 1, found != 0
}

// slot returns the index of s in the table, or a free one for it.
func (t *set[S]) slot(s S) uint64 {
	mask := uint64(len(t.table) - 1)
	slot := maphash.Comparable(t.seed, s) & mask
	for t.table[slot] != 0 && t.at(t.table[slot]-1) != s {
		slot = (slot + 1) & mask
	}
	return slot
}

func (t *set[S]) grow() {
	t.table = make([]uint32, 2*len(t.table))
	mask := uint64(len(t.table) - 1)
	for i := range t.n {
		slot := maphash.Comparable(t.seed, t.at(uint32(i))) & mask
		for t.table[slot] != 0 {
			slot = (slot + 1) & mask
		}
		t.table[slot] = uint32(i + 1)
	}
}
