package verdict

import (
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

func TestReplicatorCountersBeginAgainWithTheProcess(t *testing.T) {
	got := replicator([]trial.Replication{
		{At: 0, Accepted: 100, Sent: 90, Batch: 3, LagSeconds: 1},
		{At: 1000 * ms, Accepted: 110, Sent: 95, Batch: 7},
		{At: 2000 * ms, Accepted: 4, Sent: 2, LagChanges: 12},
		{At: 3000 * ms, Accepted: 5, Sent: 5, Batch: 2},
		{At: 1000 * ms, Node: 1, Accepted: 50, Dropped: 1},
		{At: 2000 * ms, Node: 1, Accepted: 51, Dropped: 3, Errors: 2, Merged: 6},
	})
	want := Replicator{Tasks: 10 + 4 + 1 + 1, Merged: 6, Dropped: 2, Sent: 5 + 2 + 3, Errors: 2, Batch: 7, LagChanges: 12, LagSeconds: 1}
	if got != want {
		t.Errorf("the replicators did %+v, want %+v", got, want)
	}
}

func usage() []trial.Usage {
	return []trial.Usage{
		{At: -2000 * ms, Node: 0, CPU: 1000 * ms, Memory: 10e6, Instances: 0},
		{At: -500 * ms, Node: 0, CPU: 1500 * ms, Memory: 12e6, Instances: 1000},
		{At: 0, Node: 0, CPU: 2000 * ms, Memory: 12e6, Written: 100, Sent: 10, Instances: 1000, Renewals: 500},
		{At: 0, Node: 1, CPU: 3000 * ms, Memory: 20e6, Written: 200, Sent: 20, Instances: 1000, Renewals: 500},
		{At: 2000 * ms, Node: 0, CPU: 3000 * ms, Memory: 14e6, Written: 1100, Sent: 4010, Stored: 5, Instances: 1000, Renewals: 2500},
		{At: 2000 * ms, Node: 1, CPU: 4000 * ms, Memory: 22e6, Written: 1200, Sent: 20, Stored: 6, Instances: 1000, Renewals: 2500},
		{At: 9000 * ms, Node: 0, CPU: 9000 * ms, Memory: 16e6, Stored: 7, Instances: 1000, Renewals: 9000},
	}
}

func TestCostIsThatOfTheLoad(t *testing.T) {
	trial1 := &trial.Trial{Length: 3000 * ms, Usage: usage()}
	heartbeats := scenario.Scenario{Load: scenario.Load{Instances: 1000}}
	got := Judge(trial1, heartbeats).Cost
	want := Cost{
		CPUPerRenewals: 1, BytesPerRenewals: 2000, DiskPerRenewals: 1000, MemoryPerInstances: 2e6,
		CPU: 1, Memory: 19e6, Disk: 13, Written: 1000, Sent: 2000,
	}
	if got != want {
		t.Errorf("the cost is %+v, want %+v", got, want)
	}
}

func TestCostPerRenewalIsOfHeartbeatsOnly(t *testing.T) {
	for _, c := range []struct {
		name string
		s    scenario.Scenario
	}{
		{"others read", scenario.Scenario{Load: scenario.Load{Instances: 1000, Reads: 1}}},
		{"others watch", scenario.Scenario{Load: scenario.Load{Watchers: 1}}},
		{"something fails", scenario.Scenario{Faults: []scenario.Fault{{}}}},
	} {
		if got := cost(&trial.Trial{Length: 3000 * ms, Usage: usage()}, c.s); got.CPUPerRenewals != 0 || got.BytesPerRenewals != 0 || got.MemoryPerInstances != 0 || got.CPU != 1 {
			t.Errorf("%s: the cost is %+v, want none per renewal", c.name, got)
		}
	}
}
