package port

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
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

// A later version may say more, and is understood all the same.
func TestHelloOfALaterVersionIsRead(t *testing.T) {
	want := Hello{Cluster: "c", ServerID: "n1.aa", Boot: 3, Before: 2, Known: 1, Recovered: 4, Skipped: []uint64{7, 9}}
	var b bytes.Buffer
	need.OK(t, writeHello(&b, want))
	longer := append(b.Bytes(), "more"...)
	longer[2] += 4 // its length
	r := bytes.NewReader(append(longer, "next"...))
	got, err := readHello(r)
	expect.That(t, err == nil && reflect.DeepEqual(got, want) && r.Len() == 4, "got %+v, %v, and %d bytes are left, want %+v and those of what follows", got, err, r.Len(), want)
}

// A program of 0.1.0 says nothing of skipped entries, and nodes that skip none say no more than it did.
func TestHelloOfANodeThatSkipsNothingIsThatOfTheFirstVersion(t *testing.T) {
	want := Hello{Cluster: "c", ServerID: "n1.aa", Boot: 3}
	var b bytes.Buffer
	need.OK(t, writeHello(&b, want))
	expect.Equal(t, b.Len(), 3+1+len("c")+1+len("n1.aa")+4*8, "bytes")
	got, err := readHello(&b)
	expect.That(t, err == nil && reflect.DeepEqual(got, want), "got %+v, %v, want %+v", got, err, want)
}

func TestHelloThatBreaksOffInItsSkippedEntriesIsRefused(t *testing.T) {
	var b bytes.Buffer
	need.OK(t, writeHello(&b, Hello{Cluster: "c", ServerID: "n1.aa", Skipped: []uint64{7, 9}}))
	for cut := 1; cut < 2+2*8; cut++ {
		short := bytes.Clone(b.Bytes()[:b.Len()-cut])
		short[2] -= byte(cut)
		got, err := readHello(bytes.NewReader(short))
		expect.That(t, err != nil, "%d bytes short: %+v, want an error", cut, got)
	}
}
