//go:build race

package consul_test

// raced is true where the race detector makes everything slow: walks over many states are shorter then.
const raced = true
