package link

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestMergedTasksSayWhatBothDid(t *testing.T) {
	removal := registry.Remove{Kind: registry.Canceled, Life: 3}
	for _, tt := range []struct {
		name         string
		older, newer Task
		want         Task
	}{
		{
			name:  "a heartbeat is dropped beside a registration that waits",
			older: Task{Facts: Registered, First: 4}, newer: Task{Facts: Heartbeat},
			want: Task{Facts: Registered, First: 4},
		},
		{
			name:  "a heartbeat is dropped beside an override that waits",
			older: Task{Facts: Overridden, First: 4}, newer: Task{Facts: Heartbeat},
			want: Task{Facts: Overridden, First: 4},
		},
		{
			name:  "a heartbeat is dropped beside a removal that waits",
			older: Task{Facts: Canceled, First: 4, Remove: removal}, newer: Task{Facts: Heartbeat},
			want: Task{Facts: Canceled, First: 4, Remove: removal},
		},
		{
			name:  "two heartbeats are one",
			older: Task{Facts: Heartbeat, Tries: 2}, newer: Task{Facts: Heartbeat},
			want: Task{Facts: Heartbeat, Tries: 2},
		},
		{
			name:  "a registration clears a heartbeat",
			older: Task{Facts: Heartbeat}, newer: Task{Facts: Registered, First: 7},
			want: Task{Facts: Registered, First: 7},
		},
		{
			name:  "an override clears a heartbeat",
			older: Task{Facts: Heartbeat}, newer: Task{Facts: Overridden, First: 7},
			want: Task{Facts: Overridden, First: 7},
		},
		{
			name:  "an override goes with a registration that waits",
			older: Task{Facts: Registered, First: 4, NewLife: true}, newer: Task{Facts: Overridden, First: 7},
			want: Task{Facts: Registered | Overridden, First: 4, NewLife: true},
		},
		{
			name:  "a registration goes with an override that waits",
			older: Task{Facts: Overridden, First: 4}, newer: Task{Facts: Registered, First: 7},
			want: Task{Facts: Registered | Overridden, First: 4},
		},
		{
			name:  "a removal clears all that was before",
			older: Task{Facts: Registered | Overridden, First: 4, NewLife: true}, newer: Task{Facts: Canceled, First: 7, Remove: removal},
			want: Task{Facts: Canceled, First: 4, Remove: removal},
		},
		{
			name:  "a registration clears a removal, and begins a life that the peer does not know",
			older: Task{Facts: Canceled, First: 4, Remove: removal}, newer: Task{Facts: Registered, First: 7},
			want: Task{Facts: Registered, First: 4, NewLife: true},
		},
		{
			name:  "an override after a removal says that the instance was registered in between",
			older: Task{Facts: Canceled, First: 4, Remove: removal}, newer: Task{Facts: Overridden, First: 7},
			want: Task{Facts: Registered | Overridden, First: 4, NewLife: true},
		},
		{
			name:  "a change that comes back is as old as it was",
			older: Task{Facts: Registered, First: 9}, newer: Task{Facts: Registered, First: 7},
			want: Task{Facts: Registered, First: 7},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect.Equal(t, Merge(tt.older, tt.newer), tt.want, "got")
		})
	}
}

func TestMergedTaskIsAsOldAsTheOlderOfBoth(t *testing.T) {
	before := time.Now()
	later := before.Add(time.Minute)
	older := Task{Facts: Registered, First: 3, Queued: before, AsOf: before}
	newer := Task{Facts: Canceled, First: 4, Queued: later, AsOf: later}
	got := Merge(older, newer)
	expect.Equal(t, got.Queued, before, "queued at")
	expect.Equal(t, got.AsOf, later, "the removal is as of")
}
