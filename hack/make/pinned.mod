// pinned.sum has the sums of programs' sources beside those that a go.mod requires, and of modules that their own
// go.sum lacks (hack/source-mod.sh).
module pinned

go 1.26.0
