package port

import (
	"strings"
	"testing"
)

func TestHelloIsOutdatedWithoutTheNewestStart(t *testing.T) {
	for _, tt := range []struct {
		name         string
		boot, before uint64
		known        uint64
		want         string // part of the error; empty: it is not outdated
	}{
		{"nothing is known", 5, 4, 0, ""},
		{"the same start", 5, 4, 5, ""},
		{"the next start", 5, 4, 4, ""},
		{"the next but one, of which nothing is known", 5, 4, 3, ""},
		{"a newer start is known", 5, 4, 6, "started again since"},
		{"a start is known between its own and the one before", 9, 4, 6, "older copy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Hello{ServerID: "n1.aa", Boot: tt.boot, Before: tt.before}.Outdated(tt.known)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}
