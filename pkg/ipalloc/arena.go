package ipalloc

// arena stores values in chunks and identifies them by index: a million of them cost the garbage
// collector almost no work, and a freed slot is reused without an allocation. It grows without
// copying, so a value never moves. Index 0 is never used: it means "none". The zero arena is empty
// and ready to use. It never shrinks.
type arena[T any] struct {
	chunks []*[chunk]T
	last   uint32 // the highest index ever handed out
	free   []uint32
}

// chunk is the number of values allocated at once.
const chunk = 256

func (a *arena[T]) add(v T) uint32 {
	if last := len(a.free) - 1; last >= 0 {
		i := a.free[last]
		a.free = a.free[:last]
		*a.at(i) = v
		return i
	}
	a.last++
	if int(a.last/chunk) >= len(a.chunks) {
		a.chunks = append(a.chunks, new([chunk]T))
	}
	*a.at(a.last) = v
	return a.last
}

func (a *arena[T]) drop(i uint32) {
	var zero T
	*a.at(i) = zero
	a.free = append(a.free, i)
}

// at returns the value at i, which must be allocated.
func (a *arena[T]) at(i uint32) *T { return &a.chunks[i/chunk][i%chunk] }
