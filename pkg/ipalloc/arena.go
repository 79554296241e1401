package ipalloc

// arena keeps values in one slice and names them by index, so that a million of
// them cost the garbage collector nothing and a freed place is used again
// without an allocation. Index 0 is never handed out: it means "none". The zero
// arena is empty and ready to use. It never shrinks.
type arena[T any] struct {
	slots []T
	free  []uint32
}

func (a *arena[T]) add(v T) uint32 {
	if last := len(a.free) - 1; last >= 0 {
		i := a.free[last]
		a.free = a.free[:last]
		a.slots[i] = v
		return i
	}
	if len(a.slots) == 0 {
		a.slots = make([]T, 1)
	}
	a.slots = append(a.slots, v)
	return uint32(len(a.slots) - 1)
}

func (a *arena[T]) drop(i uint32) {
	var zero T
	a.slots[i] = zero
	a.free = append(a.free, i)
}

// at returns the value at i. The pointer is good until the next add.
func (a *arena[T]) at(i uint32) *T { return &a.slots[i] }
