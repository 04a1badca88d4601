package client

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// A server that closes a connection on what it has not read waits for half a second before, by itself.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// noneLeft fails the test unless the goroutines that there were not before end, for which a busy machine has time.
func noneLeft(t *testing.T, before goleak.Option) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		err := goleak.Find(before)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
