package replication

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestMergedTasksTellWhatBothDid(t *testing.T) {
	removal := registry.Remove{Kind: registry.Canceled, Life: 3}
	for _, tt := range []struct {
		name         string
		older, newer task
		want         task
	}{
		{
			name:  "a heartbeat is dropped beside a registration that waits",
			older: task{facts: registered, first: 4}, newer: task{facts: heartbeat},
			want: task{facts: registered, first: 4},
		},
		{
			name:  "a heartbeat is dropped beside an override that waits",
			older: task{facts: overridden, first: 4}, newer: task{facts: heartbeat},
			want: task{facts: overridden, first: 4},
		},
		{
			name:  "a heartbeat is dropped beside a removal that waits",
			older: task{facts: canceled, first: 4, remove: removal}, newer: task{facts: heartbeat},
			want: task{facts: canceled, first: 4, remove: removal},
		},
		{
			name:  "two heartbeats are one",
			older: task{facts: heartbeat, tries: 2}, newer: task{facts: heartbeat},
			want: task{facts: heartbeat, tries: 2},
		},
		{
			name:  "a registration clears a heartbeat",
			older: task{facts: heartbeat}, newer: task{facts: registered, first: 7},
			want: task{facts: registered, first: 7},
		},
		{
			name:  "an override clears a heartbeat",
			older: task{facts: heartbeat}, newer: task{facts: overridden, first: 7},
			want: task{facts: overridden, first: 7},
		},
		{
			name:  "an override goes with a registration that waits",
			older: task{facts: registered, first: 4, began: true}, newer: task{facts: overridden, first: 7},
			want: task{facts: registered | overridden, first: 4, began: true},
		},
		{
			name:  "a registration goes with an override that waits",
			older: task{facts: overridden, first: 4}, newer: task{facts: registered, first: 7},
			want: task{facts: registered | overridden, first: 4},
		},
		{
			name:  "a removal clears all that was before",
			older: task{facts: registered | overridden, first: 4, began: true}, newer: task{facts: canceled, first: 7, remove: removal},
			want: task{facts: canceled, first: 4, remove: removal},
		},
		{
			name:  "a registration clears a removal, and begins a life that the peer does not know",
			older: task{facts: canceled, first: 4, remove: removal}, newer: task{facts: registered, first: 7},
			want: task{facts: registered, first: 4, began: true},
		},
		{
			name:  "what is overridden after a removal was registered before",
			older: task{facts: canceled, first: 4, remove: removal}, newer: task{facts: overridden, first: 7},
			want: task{facts: registered | overridden, first: 4, began: true},
		},
		{
			name:  "a change that comes back is as old as it was",
			older: task{facts: registered, first: 9}, newer: task{facts: registered, first: 7},
			want: task{facts: registered, first: 7},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect.Equal(t, merge(tt.older, tt.newer), tt.want, "got")
		})
	}
}

func TestAMergedTaskIsAsOldAsTheFirst(t *testing.T) {
	before := time.Now()
	later := before.Add(time.Minute)
	older := task{facts: registered, first: 3, queued: before, asOf: before}
	newer := task{facts: canceled, first: 4, queued: later, asOf: later}
	got := merge(older, newer)
	expect.Equal(t, got.queued, before, "queued at")
	expect.Equal(t, got.asOf, later, "the removal is as of")
}
