package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/consensus"
)

// removing is a store whose removals all end alike.
type removing struct{ err error }

func (r removing) RemoveMember(context.Context, string) error { return r.err }

func (r removing) TransferLeadership(_ context.Context, name string) (string, error) {
	return name, r.err
}

// Verify is a comparison in which n2 differs, and n3 has no digest.
func (r removing) Verify(context.Context) consensus.Comparison {
	one, other := new(consensus.Digest), new(consensus.Digest)
	one.Index, one.Parts = 7, []uint64{1}
	other.Index, other.Parts = 7, []uint64{2}
	return consensus.Comparison{Index: 7, Age: time.Second, Verdict: "differ", Nodes: []consensus.Compared{
		{Name: "n1", Digest: one}, {Name: "n2", Digest: other, Differs: []string{"keys"}}, {Name: "n3"},
	}}
}

func TestVerificationIsAComparisonInTheDocumentsOfTheAPI(t *testing.T) {
	got := members{removing{}}.Verify(t.Context())
	need.That(t, got.Verdict == "differ" && got.Index == 7 && got.Age == 1000 && len(got.Nodes) == 3, "got %+v", got)
	n2, n3 := got.Nodes[1], got.Nodes[2]
	expect.That(t, n2.Index == 7 && n2.Digest != got.Nodes[0].Digest && slices.Equal(n2.Differs, []string{"keys"}), "n2: got %+v", n2)
	expect.That(t, n3.Index == 0 && n3.Digest == "" && strings.Contains(n3.Sentence, "no digest"), "n3: got %+v", n3)
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
