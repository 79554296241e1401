// Package floor has bare programs that issue the writes, or the reads, that a measure needs,
// with the same parallelism as the operator, and do nothing else. They keep nothing, check
// nothing and know the answer before they start.
//
// Those that write repeat this operator's own writes, one Go program with one JSON body per
// request. They show what an operator adds to them. A faster client might exist, and other
// writes, or fewer, might do. As in the operator, no watch shares a connection with writes.
// Answers are not decoded.
package floor
