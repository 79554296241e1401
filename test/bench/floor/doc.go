// Package floor is what no operator can be faster than on the same API server:
// bare programs that issue the writes, or the reads, that a measure needs, with
// the same parallelism, and do nothing else. They keep nothing, check nothing
// and know the answer before they start.
//
// Those that write repeat this operator's own writes. They show what an operator adds
// to them, and nothing of whether other writes, or fewer, would do.
//
// Bodies are made beforehand by hand and answers are not decoded, save by List,
// whose very work that is.
package floor
