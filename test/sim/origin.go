package main

// origin is what a world is drawn from: the same one, and the same actions, give
// the same world.
type origin struct {
	seed    uint64
	profile profile
	traits  traits
}

// originOf is what a seed makes of everything that is not asked for.
func originOf(seed uint64) origin { return origin{seed, profileOf(seed), traitsOf(seed)} }
