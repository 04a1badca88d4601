package integration

import (
	"fmt"
	"testing"
	"time"
)

// pollInterval is how often Eventually looks.
const pollInterval = 20 * time.Millisecond

// Eventually waits until probe returns nil, and fails the test with its last error if that takes
// longer than limit. Limits are for liveness only: about ten times what is expected.
func Eventually(t testing.TB, limit time.Duration, what string, probe func() error) {
	t.Helper()
	if err := Poll(limit, probe); err != nil {
		t.Fatalf("%s: not within %v: %v", what, limit, err)
	}
}

// Poll calls probe until it returns nil or limit has passed, and returns its last answer.
func Poll(limit time.Duration, probe func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for deadline := time.Now().Add(limit); ; <-ticker.C {
		err := probe()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// Pass lets d go by while a process under test does something by its own clock, such as ending a
// lease. It is not a way to wait for a condition: that is Eventually.
func Pass(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("the test was ended while time passed")
	}
}

// notYet is the answer of a probe that counts.
func notYet(have, want int) error {
	if have >= want {
		return nil
	}
	return fmt.Errorf("%d of %d so far", have, want)
}

// must fails the test over an error of a call whose result is not looked at.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
