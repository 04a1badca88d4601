package main

import (
	"os"
	"slices"
	"testing"
)

// TestMain lets the tests' own program be what dev and lock start: a node; or dev itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"server", "dev", "lock"}, os.Args[1]) {
		main()
	}
	os.Exit(m.Run())
}
