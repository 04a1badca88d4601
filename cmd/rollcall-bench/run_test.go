package main

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// shortRun measures as little as it can, on clusters that keep their leaders however busy the machine is.
func shortRun(t *testing.T) *ratiosRun {
	return &ratiosRun{
		ratiosPlan: ratiosPlan{rounds: 1, window: 250 * time.Millisecond, instances: 200, few: 50, many: 200, crashed: 3, watchers: 6, changes: 3, keys: 200, contenders: 5, handovers: 20, sessions: 20, cut: 500 * time.Millisecond, quick: true},
		figures:    newFigures(),
		server:     testServer,
		dir:        t.TempDir(),
		progress:   t.Output(),
		began:      time.Now(),
		settings:   []string{"--raft-heartbeat-timeout=4s", "--raft-election-timeout=4s", "--raft-lease-timeout=4s"},
	}
}

// wantNothingWrong lets through only what a cluster answers that gets too little of the machine.
func wantNothingWrong(t *testing.T, run *ratiosRun) {
	t.Helper()
	for how, n := range run.wrong {
		if !strings.HasPrefix(how, "status 503 ") && !strings.HasPrefix(how, "status 504 ") {
			t.Errorf("wrong answers: %d × %s", n, how)
		}
	}
}

// The rest of a run differs from this part in nothing but which loads it sends.
func TestARunMeasuresRealClusters(t *testing.T) {
	run := shortRun(t)
	run.window = 2 * time.Second // in which a busy machine gets something done
	need.OK(t, run.scale(t.Context()))
	for name, values := range map[figureName]int{renewFew: 1, renewMany: 1, heapEach: 3, restartReady: 3} {
		f := run.find(name)
		if f == nil || len(f.Values) != values {
			t.Errorf("%s: got %+v, want %d values", name, f, values)
			continue
		}
		if s := spreadOf(f.Values); s.Min <= 0 {
			t.Errorf("%s: got %v", name, s)
		}
	}
	wantNothingWrong(t, run)
}

func TestCrashesAndWatchersAreMeasuredOnARealCluster(t *testing.T) {
	t.Parallel()
	run := shortRun(t)
	need.OK(t, run.leases(t.Context()))
	for _, name := range []figureName{crashP50, crashP99, arrivalP50, arrivalP99} {
		if f := run.find(name); f == nil || len(f.Values) != 1 || f.Values[0] <= 0 {
			t.Errorf("%s: got %+v, want one value", name, f)
		}
	}
	wantNothingWrong(t, run)
}

func TestTwoDatacentersAreMeasuredAndEndEqual(t *testing.T) {
	t.Parallel()
	run := shortRun(t)
	need.OK(t, run.replication(t.Context()))
	for _, name := range []figureName{crossingP50, crossingP99, cpuPaused, cpuSending, cpuForPeer, beatsTold, healing, cutResident, cutHeap, cutGoal} {
		if f := run.find(name); f == nil || len(f.Values) != 1 {
			t.Errorf("%s: got %+v, want one value", name, f)
		}
	}
	for _, name := range []figureName{crossingP99, healing} {
		if f := run.find(name); f != nil && f.Values[0] <= 0 {
			t.Errorf("%s: got %v", name, f.Values)
		}
	}
	wantNothingWrong(t, run)
}

func TestKeysLocksAndSessionsAreMeasured(t *testing.T) {
	t.Parallel()
	run := shortRun(t)
	need.OK(t, run.coordination(t.Context()))
	for _, name := range []figureName{put256, putSolo, handOverP50, handOverP99, watcherAnswers, watcherArrival, cpuSessions, cpuSessionsAll} {
		if f := run.find(name); f == nil || len(f.Values) != 1 {
			t.Errorf("%s: got %+v, want one value", name, f)
		}
	}
	if f := run.find(watcherAnswers); f != nil && f.Values[0] != 1 {
		t.Errorf("the watcher of one key was answered %v times, want once", f.Values)
	}
	wantNothingWrong(t, run)
}

func TestAClusterWithoutConsensusIsUnderLoadAtItsFirstNode(t *testing.T) {
	t.Parallel()
	run := shortRun(t)
	run.window = 2 * time.Second // in which a busy machine gets something done
	f := benchFleet{name: "renewed", size: run.few}
	clusters := need.Got(run.clusters(t.Context(), clusterSpec{name: "ap", mode: localcluster.AP, fleets: []benchFleet{f}}))(t)
	defer stopClusters(clusters)
	need.OK(t, run.recordLeaderRate(t.Context(), renewAP256, clusters[0], run.renewals(3, f.renewals())))
	if v := run.find(renewAP256); v == nil || v.Values[0] <= 0 {
		t.Errorf("got %+v", v)
	}
	wantNothingWrong(t, run)
}

func TestTheBareHandlerIsAProcess(t *testing.T) {
	run := shortRun(t)
	bare := need.Got(run.startBare(t.Context()))(t)
	defer bare.Stop()
	l := httpLoad{targets: []string{run.bare}, conns: 2, requests: times(5, benchFleet{name: "a", size: 10}.renewals()), want: 200}
	if r, err := l.closed(t.Context()); err != nil || r.right != 10 {
		t.Errorf("%+v, %v, want 10 right answers", r, err)
	}
}

func TestTheBareRaftCommits(t *testing.T) {
	c := need.Got(startBareRaft(t.TempDir(), 5*time.Millisecond))(t)
	defer c.stop()
	if ms, err := c.apply(t.Context()); err != nil || ms <= 0 {
		t.Errorf("an Apply takes %f ms, %v", ms, err)
	}
}
