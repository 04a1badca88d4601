package client

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The guard at work is tested in package list, and by TestDiscoveryKeepsItsListWhenAServerIsSuddenlyEmpty.
func TestGuardValidateReportsEveryMistake(t *testing.T) {
	tests := []struct {
		name  string
		guard Guard
		want  []string // in the error, in this order; none: it is valid
	}{
		{"zero", Guard{}, nil},
		{"both fields", Guard{Share: 1, Hold: time.Second}, nil},
		{"off", Guard{Share: -1}, nil},
		{"a share above all", Guard{Share: 1.5}, []string{"Guard.Share 1.5", "between 0 and 1"}},
		{"not a number", Guard{Share: math.NaN()}, []string{"Guard.Share NaN"}},
		{"two mistakes", Guard{Share: 50, Hold: -time.Second}, []string{"Guard.Share 50", "Guard.Hold -1s", "must not be negative"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.guard.Validate()
			need.That(t, (err == nil) == (tt.want == nil), "error %v, want %q", err, tt.want)
			rest := fmt.Sprint(err)
			for _, part := range tt.want {
				_, after, found := strings.Cut(rest, part)
				expect.That(t, found, "error %q lacks %q", err, part)
				rest = after
			}
		})
	}
}
