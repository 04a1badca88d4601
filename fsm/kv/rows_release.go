//go:build !nextlevel && !skiplevel

package kv

// nextRows are no operations: only programs that stand for the next version have some.
var nextRows []Row
