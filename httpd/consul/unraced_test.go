//go:build !race

package consul_test

const raced = false
