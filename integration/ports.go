package integration

import (
	"fmt"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/freeport"
)

// FreeAddr is an address of 127.0.0.1 on which nobody listens, and which nobody else gets while the tests run.
func FreeAddr(t testing.TB) string {
	t.Helper()
	port, err := freeport.ClaimAround()
	if err != nil {
		t.Fatal(err)
	}
	return loopback(port)
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
