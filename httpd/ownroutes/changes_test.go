package ownroutes

import (
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestPositionIsReadAsItIsWritten(t *testing.T) {
	for _, row := range []struct {
		text, epoch string
		index       registry.Index
	}{
		{"test-0", "test", 0},
		{"c0ffee-1-42", "c0ffee-1", 42},
		{"-7", "", 7},
		{"a--7", "a-", 7},
		{"test-18446744073709551615", "test", 1<<64 - 1},
	} {
		p, err := parsePosition(row.text)
		expect.That(t, err == nil && p == position{row.epoch, row.index} && p.String() == row.text, "%q: got %+v, %v", row.text, p, err)
	}
}

// FuzzPosition: what is accepted has one spelling, and can be sent in a line of an event.
func FuzzPosition(f *testing.F) {
	for _, seed := range []string{"test-1", "a-b-0", "-0", "", "-", "test-01", "test-+1", "test-18446744073709551616", "te\nst-1", "test\xff-1", "test-1\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePosition(text)
		if err != nil {
			return
		}
		expect.That(t, p.String() == text && strings.HasPrefix(text, p.epoch+"-"), "%q was read as %q", text, p)
		expect.That(t, !strings.ContainsAny(text, "\r\n\x00") && len(text) <= 255, "%q was accepted", text)
	})
}
