// Package check is the command check: its flags, output and exit codes. The operator and the
// kubectl plugin both have it.
package check
