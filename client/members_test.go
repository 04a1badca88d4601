package client

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestRemoveMemberSaysWhatBecameOfTheNode(t *testing.T) {
	unknown := always(504, `{"error":"nobody knows"}`, "X-Rollcall-Outcome", "unknown")
	for _, tc := range []struct {
		name          string
		first, second func(*http.Request) (*http.Response, error)
		want          error  // nil: removed, unless says is set
		says          string // in the text of the error
	}{
		{name: "removed", first: always(200, `{"removed":"n1"}`), second: cutOff},
		{name: "no such node", first: always(404, `{"error":"no"}`), second: cutOff, want: ErrUnknownMember, says: `remove node "n1"`},
		{name: "no leader there, removed elsewhere", first: always(503, ""), second: always(200, "")},
		{name: "refused everywhere", first: always(503, `{"error":"only n3 would be left"}`), second: always(503, ""), says: "503 Service Unavailable: only n3 would be left"},
		{name: "not offered", first: always(501, `{"error":"ask a node in mode cp"}`), second: always(200, ""), says: "501 Not Implemented: ask a node in mode cp"},
		{name: "the server does not know", first: unknown, second: always(200, ""), want: ErrUnknownOutcome},
		{name: "cut off, gone elsewhere", first: cutOff, second: always(404, `{"error":"no such node"}`)},
		{name: "cut off, nobody elsewhere", first: cutOff, second: unreachable, want: ErrUnknownOutcome},
		{name: "nobody there, no such node elsewhere", first: unreachable, second: always(404, `{"error":"no such node"}`), want: ErrUnknownMember},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := servers{"a": tc.first, "b": tc.second}.client(t, "a", "b").RemoveMember(t.Context(), "n1")
			failed := tc.want != nil || tc.says != ""
			need.That(t, (err != nil) == failed, "got %v, want an error: %t", err, failed)
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q in it", err, tc.says)
			}
		})
	}
}

func TestRemoveMemberNamesTheNodeInThePath(t *testing.T) {
	j := newJournal()
	need.OK(t, (servers{"a": j.around(always(200, ""))}).client(t, "a").RemoveMember(t.Context(), "n/1"))
	want := "DELETE /v1/rollcall/members/n%2F1"
	expect.That(t, j.String() == want, "sent %q, want %q", j, want)
}
