package kv

import (
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestKeysAreCutBehindTheSeparator(t *testing.T) {
	r := newRig(t)
	for _, key := range []string{"a", "a/", "a/b", "a/b/c", "a/b/d", "a/c", "ab", "b//c", "é/x"} {
		r.yes(set(key, ""))
	}
	tests := []struct {
		prefix, separator string
		want              []string
	}{
		{"", "", []string{"a", "a/", "a/b", "a/b/c", "a/b/d", "a/c", "ab", "b//c", "é/x"}},
		{"", "/", []string{"a", "a/", "ab", "b/", "é/"}},
		{"a", "/", []string{"a", "a/", "ab"}},
		{"a/", "/", []string{"a/", "a/b", "a/b/", "a/c"}},
		{"a/b", "/", []string{"a/b", "a/b/"}},
		{"a/b/", "/", []string{"a/b/c", "a/b/d"}},
		{"b/", "/", []string{"b//"}},
		{"b", "//", []string{"b//"}},
		{"x", "/", nil},
	}
	for _, test := range tests {
		got, _, _ := r.View().Keys(test.prefix, test.separator)
		expect.That(t, slices.Equal(got, test.want), "keys under %q cut at %q are %q, want %q", test.prefix, test.separator, got, test.want)
	}
}

func TestListIsInByteOrder(t *testing.T) {
	r := newRig(t)
	for _, key := range []string{"b", "a\xff", "a/2", "a/10", "a", "A"} {
		r.yes(set(key, ""))
	}
	var got []string
	entries, _, _ := r.View().List("a")
	for _, e := range entries {
		got = append(got, e.Key)
	}
	expect.Slice(t, got, []string{"a", "a/10", "a/2", "a\xff"}, "listed")
	n := r.View().Len()
	expect.That(t, n == 6, "%d keys, want 6", n)
}

func TestSessionsAreListedById(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{s3, s1, s2} {
		r.session(id)
	}
	var got []string
	for s := range r.View().Sessions() {
		got = append(got, s.ID)
		if s.ID == s2 {
			break
		}
	}
	expect.Slice(t, got, []string{s1, s2}, "listed")
}

func TestViewOfTheSameStateIsShared(t *testing.T) {
	r := newRig(t)
	r.yes(set("a", "1"))
	first := r.View()
	r.pass(1)
	r.yes(set("a", "1"))
	second := r.View()
	expect.That(t, first.shown == second.shown, "without a change the tables were copied")
	if first.Lease() == second.Lease() || second.Lease() != r.now {
		t.Errorf("the lease clock went from %d to %d, want %d", first.Lease(), second.Lease(), r.now)
	}
}
