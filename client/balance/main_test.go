package balance

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain looks for goroutines that tests left behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
