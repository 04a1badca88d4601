package integration

import (
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/localcluster"
)

// FreeAddr is an address of 127.0.0.1 on which nobody listens, and which nobody else gets while the tests run.
func FreeAddr(t testing.TB) string {
	t.Helper()
	port, err := localcluster.ClaimPort()
	if err != nil {
		t.Fatal(err)
	}
	return localcluster.Address(port)
}
