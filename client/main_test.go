package client

import (
	"testing"
	"testing/synctest"
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

// inBubble runs a test in virtual time; as a subtest if it is given a name.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	if name == "" {
		synctest.Test(t, test)
		return
	}
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}
