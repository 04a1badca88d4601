package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/store/consensus"
)

// removing is a store whose removals all end alike.
type removing struct{ err error }

func (r removing) RemoveMember(context.Context, string) error { return r.err }

func (r removing) TransferLeadership(_ context.Context, name string) (string, error) {
	return name, r.err
}

func TestMembersReturnErrorsInTheTermsOfTheAPI(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error // of the store
		want error // as httpd knows it
	}{
		{name: "unknown node", err: consensus.ErrUnknownMember, want: httpd.ErrUnknownMember},
		{name: "refused", err: consensus.ErrMembership, want: httpd.ErrMembership},
		{name: "no leader", err: registry.ErrNoLeader, want: registry.ErrNoLeader},
		{name: "unknown outcome", err: registry.ErrUnknownOutcome, want: registry.ErrUnknownOutcome},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cause := fmt.Errorf("remove node \"n1\": %w: a reason", tc.err)
			got := members{removing{cause}}.Remove(t.Context(), "n1")
			expect.That(t, errors.Is(got, tc.want) && got.Error() == cause.Error(), "got %v, want %v in the words %q", got, tc.want, cause)
			_, got = members{removing{cause}}.Transfer(t.Context(), "n1")
			expect.That(t, errors.Is(got, tc.want) && got.Error() == cause.Error(), "transfer: got %v, want %v in the words %q", got, tc.want, cause)
		})
	}
	expect.OKf(t, (members{removing{}}).Remove(t.Context(), "n1"), "a removal that succeeded")
}

func TestNodeStatusHasTheIndexOfTheNodesResponses(t *testing.T) {
	n := consensus.NodeStatus{
		ID: "n1", HTTP: "a", Cluster: "b", Role: "follower", Applied: 9, Index: 7, Reachable: true, Voter: true, Version: "v1", Zone: "z",
		Contact: 1500 * time.Microsecond, Lag: 3, DiskFree: 8,
	}
	want := api.NodeStatus{
		ID: "n1", HTTP: "a", Cluster: "b", Role: "follower", Applied: 9, Index: "c0ffee-7", Voter: true, Version: "v1", Zone: "z", Contact: 1, Lag: 3, DiskFree: 8,
	}
	expect.Equal(t, nodeStatus("c0ffee", n), want, "got")
	got := nodeStatus("c0ffee", consensus.NodeStatus{ID: "n1", Role: "unreachable"})
	expect.That(t, got.Index == "", "an unreachable node is at %q, want no index", got.Index)
}
