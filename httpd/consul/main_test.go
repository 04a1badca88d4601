package consul_test

import (
	"testing"

	"go.uber.org/goleak"
)

// A server that closes a connection with unread bytes waits for half a second first.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}
