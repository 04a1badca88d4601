package local

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedDir); dir != "" {
		workUntilKilled(dir)
		return
	}
	goleak.VerifyTestMain(m)
}
