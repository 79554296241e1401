// Package check is the command check: its flags, what it prints and its exit
// codes. The operator and the kubectl plugin both have it.
package check
