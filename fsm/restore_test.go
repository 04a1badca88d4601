package fsm

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/backup"
)

// backupOf is a snapshot for people of a machine's state.
func backupOf(t need.T, m *Machine) []byte {
	var b bytes.Buffer
	_, _, err := backup.Write(&b, backup.Source{Registry: m.View(), KV: m.KV(), Header: backup.Header{Level: codec.Newest, Mode: "cp", Cluster: "c1"}})
	need.OK(t, err)
	return b.Bytes()
}

// stages are the operations that bring a snapshot, and its header.
func stages(t need.T, id string, saved []byte) (ops []kv.Op, h backup.Header) {
	r := need.Got(backup.Open(bytes.NewReader(saved)))(t)
	for {
		part, err := r.Next()
		if err != nil {
			return ops, r.Header
		}
		ops = append(ops, kv.StagePart{ID: id, By: goldenAct, Part: uint64(len(ops)), Content: bytes.Clone(part)})
	}
}

// history is a random history with restores and recoveries. What its readers were told of indexes and tokens is remembered:
// it must never be told lower.
type history struct {
	*twins
	saved  [][]byte // snapshots for people
	raft   [][]byte // snapshots of Raft, from which a node may be recovered
	lowest map[string]registry.Index
	n      int
}

func TestNoIndexAndNoTokenGoesBackThroughRestoresAndRecoveries(t *testing.T) {
	histories := 0
	for histories < 300 && !t.Failed() {
		rapid.Check(t, func(t *rapid.T) {
			histories++
			h := &history{twins: newTwins(), lowest: map[string]registry.Index{}}
			h.establish(t)
			actions := h.actions()
			delete(actions, "preserve")
			actions["save"], actions["bring back"], actions["bring back 2"], actions["recover"] = h.save, h.bringBack, h.bringBack, h.recover
			actions["acquire"], actions["acquire 2"], actions["save elsewhere"] = h.acquire, h.acquire, h.saveElsewhere
			actions[""] = h.look
			for range rapid.IntRange(8, 25).Draw(t, "steps") {
				actions[rapid.SampledFrom(sortedNames(actions)).Draw(t, "action")](t)
				h.look(t)
			}
			h.compareSnapshots(t)
			h.compareCoordination(t)
		})
		if testing.Short() {
			return
		}
	}
}

func (h *history) save(t *rapid.T) {
	h.saved = append(h.saved, backupOf(t, h.straight))
	var b bytes.Buffer
	need.Got(h.straight.Snapshot().WriteTo(&b))(t)
	h.raft = append(h.raft, b.Bytes())
}

// bringBack restores one of the snapshots, or the beginning of it.
func (h *history) bringBack(t *rapid.T) {
	if len(h.saved) == 0 {
		return
	}
	h.n++
	id := fmt.Sprint("r", h.n)
	ops, header := stages(t, id, rapid.SampledFrom(h.saved).Draw(t, "snapshot"))
	op := kv.Restore{ID: id, Parts: uint64(len(ops)), By: goldenAct, Newest: header.Index, KeepSessions: rapid.Bool().Draw(t, "keep sessions")}
	if rapid.Bool().Draw(t, "keys only") {
		op.KeysOnly, op.Prefix = true, rapid.SampledFrom([]string{"", "a", "a/"}).Draw(t, "prefix")
	}
	if rapid.IntRange(0, 5).Draw(t, "cut") == 0 {
		ops = ops[:len(ops)/2]
	}
	for _, stage := range ops {
		h.apply(t, [][]byte{h.batch(t, []Item{{KV: stage}})})
		if rapid.IntRange(0, 5).Draw(t, "restart") == 0 {
			h.restore(t)
		}
	}
	h.apply(t, [][]byte{h.batch(t, []Item{{KV: op}})})
	if done := h.straight.KV().LastRestoration(); done != nil && done.ID == id {
		need.That(t, done.Index > header.Index, "restored at %d from a state at %d", done.Index, header.Index)
	}
}

// acquire has a new session hold a key.
func (h *history) acquire(t *rapid.T) {
	h.n++
	id, key := fmt.Sprint("h", h.n), rapid.SampledFrom(twinKeys).Draw(t, "key")
	h.apply(t, [][]byte{h.batch(t, []Item{{KV: kv.KeyOp{Verb: kv.Delete, Key: rapid.SampledFrom(twinKeys).Draw(t, "deleted")}},
		{KV: kv.CreateSession{ID: id}}, {KV: kv.KeyOp{Verb: kv.Acquire, Key: key, Session: id, Value: []byte(id)}}, {KV: kv.DestroySession{ID: rapid.SampledFrom([]string{id, "none"}).Draw(t, "ended")}}})})
}

// saveElsewhere saves the state as a cluster has it whose index is far ahead.
func (h *history) saveElsewhere(t *rapid.T) {
	var b bytes.Buffer
	need.Got(h.straight.Snapshot().WriteTo(&b))(t)
	m := NewMachine()
	need.OK(t, m.Restore(&b))
	m.Recover(0)
	m.Recover(0)
	h.saved = append(h.saved, backupOf(t, m))
}

// recover goes on from a snapshot of Raft as the only state that is left.
func (h *history) recover(t *rapid.T) {
	if len(h.raft) == 0 || rapid.Bool().Draw(t, "not now") {
		return
	}
	h.stamp.Wall = max(h.stamp.Wall, 1_767_225_600_000) + 100*3_600_000 // disks are not lost every hour
	wall := h.stamp.Wall
	left := rapid.SampledFrom(h.raft).Draw(t, "left")
	for _, m := range []**Machine{&h.straight, &h.restored, &h.together} {
		recovered := NewMachine()
		need.OK(t, recovered.Restore(bytes.NewReader(left)))
		recovered.Recover(wall)
		*m = recovered
	}
	h.stamp = registry.Stamp{Lease: h.straight.View().Stamp().Lease, Wall: wall}
	h.waiting, h.brought = nil, nil
	h.sent = nil // batches of what was lost
	for node, id := range h.ids {
		h.ids[node] = BatchID{Node: node, Boot: id.Boot + 1}
	}
	h.index = max(h.index, h.straight.Index())
	h.establish(t)
}

// look compares all that readers are told with the highest that they were told of it before.
func (h *history) look(t *rapid.T) {
	told := func(what string, now registry.Index) {
		need.That(t, now >= h.lowest[what], "%s is %d, after %d", what, now, h.lowest[what])
		h.lowest[what] = now
	}
	v, k := h.straight.View(), h.straight.KV()
	told("the registry's index", v.Index())
	told("the index of coordination", max(k.Index(), v.Index()))
	told("the sessions' index", k.SessionIndex())
	told("the catalog's index", v.CatalogIndex())
	for _, topic := range []registry.Topic{{}, {Kind: registry.AllTopic}, {Kind: registry.ServicesTopic}, {Kind: registry.NodesTopic}, {Kind: registry.ChecksTopic}, {Kind: registry.NodeTopic}} {
		at, _ := v.LastChange(topic)
		told(fmt.Sprint("topic ", topic), at)
	}
	for _, key := range twinKeys {
		p, index := k.Get(key)
		if p != nil {
			told("the ModifyIndex of "+key, p.ModifyIndex)
		}
		if p != nil && p.Session != "" {
			told("the token of "+key, p.Fence)
		}
		told("the index of "+key, index)
		_, index, _ = k.List(key)
		told("the index below "+key, index)
	}
	for _, name := range twinPermits {
		for _, kind := range []kv.Kind{kv.Lock, kv.Semaphore} {
			if p, _ := k.Permits(kind, name); p != nil {
				for _, holder := range p.Holders {
					told(fmt.Sprint("a token of ", kind, name, holder.Session), holder.Fence)
				}
			}
		}
	}
}

// A plan says what a restore then does.
func TestPlanOfARestoreIsWhatTheRestoreDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{twins: newTwins(), lowest: map[string]registry.Index{}}
		h.establish(t)
		actions := h.actions()
		names := sortedNames(actions)
		for range rapid.IntRange(0, 12).Draw(t, "steps before") {
			actions[rapid.SampledFrom(names).Draw(t, "action")](t)
		}
		saved := backupOf(t, h.straight)
		for range rapid.IntRange(0, 12).Draw(t, "steps after") {
			actions[rapid.SampledFrom(names).Draw(t, "action")](t)
		}
		then := need.Got(backup.Read(bytes.NewReader(saved)))(t)
		now := need.Got(backup.Read(bytes.NewReader(backupOf(t, h.straight))))(t)
		ops, header := stages(t, "r", saved)
		op := kv.Restore{ID: "r", Parts: uint64(len(ops)), By: goldenAct, Newest: header.Index}
		if rapid.Bool().Draw(t, "keys only") {
			op.KeysOnly, op.Prefix = true, "a"
			ops = narrowed(t, ops, op.Prefix)
			op.Parts = uint64(len(ops))
		}
		plan := backup.PlanOf(&then.Image, &now.Image, op)
		if len(ops) == 0 {
			return // nothing was saved
		}
		for _, stage := range append(ops, op) {
			h.both(t, AppendWrite(nil, codec.Newest, h.stamp, 0, h.batch(t, []Item{{KV: stage}})))
		}
		done := h.straight.KV().LastRestoration()
		need.That(t, done != nil, "nothing was restored")
		got := fmt.Sprint(done.KeysDeleted, done.SessionsEnded)
		want := fmt.Sprint(len(plan.KeysDeleted), len(plan.SessionsEnded))
		expect.That(t, got == want, "deleted keys and ended sessions are %s, and the plan says %s", got, want)
		expect.That(t, done.Keys == len(plan.KeysWritten), "%d keys were written, and the plan says %d", done.Keys, len(plan.KeysWritten))
		expect.That(t, done.Instances <= len(plan.Instances), "%d instances came back, and the plan says %d", done.Instances, len(plan.Instances))
	})
}

// narrowed are the stages of a restore of keys alone, as a cluster stages them.
func narrowed(t need.T, ops []kv.Op, prefix string) (narrow []kv.Op) {
	for _, op := range ops {
		stage := op.(kv.StagePart)
		content := need.Got(backup.Narrow(stage.Content, codec.Newest, prefix))(t)
		if content != nil {
			stage.Part, stage.Content = uint64(len(narrow)), content
			narrow = append(narrow, stage)
		}
	}
	return narrow
}

func sortedNames(actions map[string]func(*rapid.T)) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(actions)), func(name string) bool { return name == "" })
}

// Two recoveries of old copies of one state, a minute apart: the second knows nothing of the first, and must not give out again
// what the first has given out.
func TestRecoveriesWithinAnHourGiveNoIndexTwice(t *testing.T) {
	m := NewMachine()
	need.Got(m.Apply(1, 1, AppendEstablish(nil, 1, Establish{Node: "n1", Cluster: "c1"})))(t)
	var left bytes.Buffer
	need.Got(m.Snapshot().WriteTo(&left))(t)
	recovered := func(wall int64) *Machine {
		m := NewMachine()
		need.OK(t, m.Restore(bytes.NewReader(left.Bytes())))
		m.Recover(wall)
		return m
	}
	const noon = 1_780_000_000_000
	first := recovered(noon)
	second := recovered(noon + 60_000)
	expect.That(t, second.KV().Index() > first.KV().Index()+60_000, "recovered at %d, and a minute later at %d again", first.KV().Index(), second.KV().Index())
}

// A file that contradicts itself must not make a state that no node reads back from its snapshot.
func TestRestoreOfTokensBeyondTheFilesIndexIsRefused(t *testing.T) {
	for _, wrong := range []kv.Pair{{Key: "a", Fence: 1 << 40}, {Key: "a", LockIndex: math.MaxUint64}} {
		m := NewMachine()
		need.Got(m.Apply(1, 1, AppendEstablish(nil, 1, Establish{Node: "n1", Cluster: "c1"})))(t)
		wrong.CreateIndex, wrong.ModifyIndex = 1, 1
		image := kv.Image{Pairs: []*kv.Pair{&wrong}}
		packer := need.Got(zstd.NewWriter(nil))(t)
		for i, op := range []kv.Op{kv.StagePart{ID: "r", Content: packer.EncodeAll(image.Encode(1), nil)}, kv.Restore{ID: "r", Parts: 1, Newest: 1, KeysOnly: true}} {
			batch := AppendBatch(nil, 1, BatchID{Node: "n1", Boot: 1, Seq: uint64(i + 1)}, []Item{{KV: op}})
			need.Got(m.Apply(uint64(i+2), 1, AppendWrite(nil, 1, registry.Stamp{Lease: 1, Wall: 1}, 0, batch)))(t)
		}
		var b bytes.Buffer
		need.Got(m.Snapshot().WriteTo(&b))(t)
		expect.OK(t, NewMachine().Restore(&b))
		expect.That(t, m.KV().Len() == 0, "%+v was restored", wrong)
	}
}

// A restore of keys alone leaves a key away, too, that ended with its session.
func TestRestoreOfKeysAloneLeavesKeysAwayThatEndedWithTheirSession(t *testing.T) {
	m := NewMachine()
	need.Got(m.Apply(1, 1, AppendEstablish(nil, 1, Establish{Node: "n1", Cluster: "c1"})))(t)
	do := func(ops ...kv.Op) {
		var items []Item
		for _, op := range ops {
			items = append(items, Item{KV: op})
		}
		next := m.Index() + 1
		need.Got(m.Apply(next, 1, AppendWrite(nil, 1, registry.Stamp{Lease: 1, Wall: 1}, 0, AppendBatch(nil, 1, BatchID{Node: "n1", Boot: 1, Seq: next}, items))))(t)
	}
	do(kv.CreateSession{ID: "s", Behavior: kv.DeleteKeys}, kv.KeyOp{Verb: kv.Acquire, Key: "a/held", Session: "s"}, kv.KeyOp{Verb: kv.Set, Key: "a/plain"})
	saved := backupOf(t, m)
	do(kv.DestroySession{ID: "s"}, kv.KeyOp{Verb: kv.DeleteTree, Key: "a/"})
	ops, header := stages(t, "r", saved)
	ops = narrowed(t, ops, "a/")
	do(append(ops, kv.Restore{ID: "r", Parts: uint64(len(ops)), Newest: header.Index, KeysOnly: true, Prefix: "a/"})...)
	held, _ := m.KV().Get("a/held")
	plain, _ := m.KV().Get("a/plain")
	expect.That(t, held == nil && plain != nil, "the key that its session deletes is %+v, the other one %+v", held, plain)
}
