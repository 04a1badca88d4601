package membership

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
)

func TestRemovalWhoseOutcomeIsNotKnownIsUnknown(t *testing.T) {
	for _, tc := range []struct {
		err  error // of Raft
		want error // of RemoveMember; nil: removed
	}{
		{nil, nil},
		{raft.ErrNotLeader, registry.ErrNoLeader},
		{raft.ErrLeadershipLost, registry.ErrUnknownOutcome},
		{raft.ErrRaftShutdown, registry.ErrUnknownOutcome},
		{fmt.Errorf("%w within 3s", raftio.ErrNoResult), registry.ErrUnknownOutcome},
		{raft.ErrEnqueueTimeout, ErrMembership},
		{errors.New("configuration changed since 7"), ErrMembership},
	} {
		expect.ErrorIs(t, removalReply(tc.err).Removal(), tc.want, "%v: got", tc.err)
	}
}
