package registry

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// Every row of the outcome table of the status rules; "any" stands for each value.
func TestStatusRuleChain(t *testing.T) {
	const replicated = true
	all := []Status{Unknown, Up, Down, Starting, OutOfService}
	tests := []struct {
		name       string
		reported   Status
		overrides  []Status
		existing   []Status
		replicated bool
		want       Status
	}{
		{"first UP", Up, []Status{Unknown}, []Status{Unknown}, false, Up},
		{"UP does not leave OUT_OF_SERVICE", Up, []Status{Unknown}, []Status{OutOfService}, false, OutOfService},
		{"replicated UP leaves OUT_OF_SERVICE", Up, []Status{Unknown}, []Status{OutOfService}, replicated, Up},
		{"UP after DOWN, STARTING, UNKNOWN", Up, []Status{Unknown}, []Status{Down, Starting, Unknown}, false, Up},
		{"UP under an override", Up, []Status{OutOfService}, all, false, OutOfService},
		{"UP under an override, replicated", Up, []Status{OutOfService}, all, replicated, OutOfService},
		{"UP under an override DOWN", Up, []Status{Down}, all, false, Down},
		{"first OUT_OF_SERVICE", OutOfService, []Status{Unknown}, []Status{Unknown}, false, OutOfService},
		{"OUT_OF_SERVICE does not leave UP", OutOfService, []Status{Unknown}, []Status{Up}, false, Up},
		{"replicated OUT_OF_SERVICE leaves UP", OutOfService, []Status{Unknown}, []Status{Up}, replicated, OutOfService},
		{"OUT_OF_SERVICE under an override UP", OutOfService, []Status{Up}, all, false, Up},
		{"DOWN", Down, all, all, false, Down},
		{"DOWN, replicated", Down, all, all, replicated, Down},
		{"STARTING", Starting, all, all, false, Starting},
		{"STARTING, replicated", Starting, all, all, replicated, Starting},
		{"UNKNOWN", Unknown, all, all, false, Unknown},
		{"UNKNOWN, replicated", Unknown, all, all, replicated, Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, override := range tt.overrides {
				for _, existing := range tt.existing {
					if got := decide(tt.reported, override, existing, tt.replicated); got != tt.want {
						t.Errorf("reported %s, override %s, existing %s: got %s, want %s",
							tt.reported, override, existing, got, tt.want)
					}
				}
			}
		})
	}
}

// The same chain through Register: the lease that exists counts, and the override of the key.
func TestRegisterDecidesTheStatusByTheRules(t *testing.T) {
	tests := []struct {
		name     string
		existing Status
		override Status // set after the first registration; Unknown: none
		reported Status
		origin   Origin
		want     Status
	}{
		{"UP stays UP", Up, Unknown, Up, FromClient, Up},
		{"a client does not take itself out", Up, Unknown, OutOfService, FromClient, Up},
		{"a peer does", Up, Unknown, OutOfService, FromEureka, OutOfService},
		{"a client does not bring itself back", OutOfService, Unknown, Up, FromClient, OutOfService},
		{"a peer brings it back", OutOfService, Unknown, Up, FromEureka, Up},
		{"DOWN to UP", Down, Unknown, Up, FromClient, Up},
		{"STARTING to UP", Starting, Unknown, Up, FromClient, Up},
		{"an override holds", Up, OutOfService, Up, FromClient, OutOfService},
		{"an override holds against a peer", Up, OutOfService, Up, FromEureka, OutOfService},
		{"DOWN wins over an override", Up, OutOfService, Down, FromClient, Down},
		{"STARTING wins over an override", Up, OutOfService, Starting, FromClient, Starting},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.register(instance(orders1, tt.existing, 100))
			if tt.override != Unknown {
				g.client(SetOverride{Key: orders1, Status: tt.override})
			}
			g.apply(tt.origin, Register{instance(orders1, tt.reported, 200)})
			expect.Equal(t, g.status(orders1), tt.want, "got")
		})
	}
}
