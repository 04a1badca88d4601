package replication

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// stateStep is one thing that happens at a site.
type stateStep struct {
	Far  bool          `json:",omitempty"` // at the second site
	Pass time.Duration `json:",omitempty"` // at both sites, before
	// Does is what happens: a batch is performed; a message of a third party reaches both sites; the sites exchange
	// what is new; the site is restarted with what it wrote; a leadership begins; the level rises.
	Does  string
	Local bool     `json:",omitempty"` // for a message: it comes from a node of the datacenter
	Batch []byte   `json:",omitempty"` // items, encoded as in a log entry
	Says  []string `json:",omitempty"` // describes Batch, for people

	items []fsm.Item
}

// stateSequence is a test case: a start state, and what happens in it.
type stateSequence struct {
	Sites string // cp-cp, cp-ap, ap-ap
	Start string // empty, small, full
	Level byte   // of an empty state
	Alone bool   // the first site has no other one
	Steps []stateStep
}

var (
	stateSites  = []string{"cp-cp", "ap-ap", "cp-ap"}
	stateStarts = []string{"empty", "small", "full"}
)

// MarshalJSON implements json.Marshaler.
func (s stateSequence) MarshalJSON() ([]byte, error) {
	type plain stateSequence
	s.Steps = slices.Clone(s.Steps)
	for i := range s.Steps {
		step := &s.Steps[i]
		if step.Says = nil; step.items == nil {
			continue
		}
		step.Batch = fsm.AppendBatch(nil, codec.Newest, fsm.BatchID{Node: "n", Boot: 1, Seq: 1}, step.items)
		for _, it := range step.items {
			text, err := json.Marshal(cmp.Or[any](it.KV, it.Op))
			step.Says = append(step.Says, fmt.Sprintf("%s by %+v%+v: %s %v", stateRowOf(it), it.Origin, it.By, text, cmp.Or(err, nil)))
		}
	}
	return json.Marshal(plain(s))
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *stateSequence) UnmarshalJSON(text []byte) error {
	type plain stateSequence
	if err := json.Unmarshal(text, (*plain)(s)); err != nil {
		return err
	}
	for i := range s.Steps {
		if step := &s.Steps[i]; step.Batch != nil {
			_, items, err := fsm.ParseBatch(step.Batch)
			if step.items = items; err != nil {
				return err
			}
		}
	}
	return nil
}

// statesPair is two sites and the states that a sequence may begin with.
type statesPair struct {
	a, b   *statesSite
	starts map[string][2]frozenSite
}

func newStatesPair(t *testing.T, sites string, seen func(fsm.Item, string)) *statesPair {
	t.Helper()
	p := &statesPair{starts: map[string][2]frozenSite{}}
	p.a, p.b = newStatesSites(t, sites[:2] == "cp", sites[3:] == "cp")
	p.a.seen, p.b.seen = func(fsm.Item, string) {}, func(fsm.Item, string) {}
	for level := byte(codec.Oldest); level <= codec.Newest; level++ {
		need.OK(t, errors.Join(p.a.found(level), p.b.found(level)))
		p.starts[fmt.Sprint("empty", level)] = [2]frozenSite{p.a.freeze(), p.b.freeze()}
	}
	d := &stateDraw{Rand: rand.New(rand.NewPCG(1, 1)), values: statesValues()}
	register := func(app, id string) fsm.Item {
		i := d.instance(registry.NewKey(app, id))
		i.LastDirty, i.Status = 5, registry.Up
		return fsm.Item{Op: registry.Register{Instance: i}}
	}
	small := []fsm.Item{
		register("ORDERS", "i1"), register("BILLING", "i1"), register("ORDERS", "i2"), register("BILLING", "gone"),
		{Op: registry.Cancel{Key: registry.NewKey("BILLING", "gone")}},
		{Op: registry.SetOverride{Key: registry.NewKey("ORDERS", "i2"), Status: registry.OutOfService, By: statesActs[1]}},
		{Op: stateService("", "s1")}, {Op: stateService("node1", "s2")},
		{KV: kv.CreateSession{ID: statesSessions[0], TTL: 100_000, LockDelay: 10_000_000_000}}, {KV: kv.CreateSession{ID: statesSessions[1], TTL: 100_000}}, {KV: kv.KeyOp{Verb: kv.Acquire, Key: "a", Session: statesSessions[0]}},
		{KV: kv.AcquirePermit{Kind: kv.Semaphore, Name: "p", Session: statesSessions[0], Limit: 1}},
		{KV: kv.Access{Change: access.Founding(stateToken(0))}}, {KV: kv.Access{Change: access.Change{Create: []*access.Token{stateToken(1_800_000_000_000), {Accessor: statesTokens[2], Name: "eve", Secrets: []access.Secret{{}}}}}}},
		{KV: kv.Access{Change: access.Change{Revoke: statesTokens[2:]}}},
	}
	var full []fsm.Item
	for n := range 60 {
		full = append(full, register(fmt.Sprint("APP", n%7), fmt.Sprint(n)), fsm.Item{KV: kv.KeyOp{Verb: kv.Set, Key: fmt.Sprint("key", n)}})
		switch n % 6 {
		case 0:
			full = append(full, fsm.Item{Op: registry.Cancel{Key: registry.NewKey(fmt.Sprint("APP", n%7), fmt.Sprint(n))}})
		case 1:
			full = append(full, fsm.Item{Op: stateService(fmt.Sprint("fnode", n%4), fmt.Sprint("f", n))})
		case 2:
			id := fmt.Sprintf("%08d%s", n, statesSessions[0][8:])
			full = append(full, fsm.Item{KV: kv.CreateSession{ID: id, TTL: 100_000}}, fsm.Item{KV: kv.AcquirePermit{Kind: kv.Semaphore, Name: "p", Session: id, Limit: 1, Wait: 90_000}})
		}
	}
	full = append(full, fsm.Item{KV: kv.StagePart{ID: "first", Content: d.packed(kv.Image{Pairs: []*kv.Pair{{Key: "a"}}})}}, fsm.Item{KV: kv.Restore{ID: "first", Parts: 1}})
	for size, items := range map[string][]fsm.Item{"small": small, "full": append(slices.Clone(small), full...)} {
		need.OK(t, p.thaw(stateSequence{Start: "empty", Level: codec.Newest}))
		need.OK(t, errors.Join(expect.Err(p.a.perform(p.a.may(items)...)), p.converge()))
		p.starts[size] = [2]frozenSite{p.a.freeze(), p.b.freeze()}
	}
	p.a.seen, p.b.seen = seen, seen
	return p
}

// stateToken returns an operator's token that ends at a time; 0 means never.
func stateToken(expires int64) *access.Token {
	k := &access.Token{Accessor: statesTokens[0], Name: "ann", Secrets: []access.Secret{{Hash: [32]byte{1}}}, Expires: expires}
	if expires != 0 {
		k.Accessor, k.Name, k.Roles = statesTokens[1], "bob", []string{access.OperatorRole}
	}
	return k
}

func stateService(node, id string) registry.RegisterCatalog {
	d := &stateDraw{Rand: rand.New(rand.NewPCG(1, 1)), values: statesValues()}
	op := registry.RegisterCatalog{Service: &catalog.Service{Name: "web", ID: id, WeightPassing: 1, WeightWarning: 1}}
	if node != "" {
		op.Node = &catalog.Node{Name: node, Address: "192.0.2.1"}
	}
	op.Checks = []*catalog.Check{{ID: "c1", Service: id, Type: "ttl", TTL: 5000, ReapAfter: 60_000}}
	if node != "" {
		op.Checks = append(op.Checks, &catalog.Check{ID: "c2", Type: "tcp", Status: catalog.Critical})
	}
	d.fitRegistration(&op, node)
	return op
}

// may returns the items that a site can be given: mode ap has no coordination, and a level no operations of a higher
// one. Below level 2 a snapshot taken after a restore lacks what follows from it.
func (s *statesSite) may(items []fsm.Item) []fsm.Item {
	return slices.DeleteFunc(slices.Clone(items), func(it fsm.Item) bool {
		_, restores := it.KV.(kv.Restore)
		return it.KV != nil && !s.consensus || stateNeeds(it) > s.level() || restores && s.level() < 2
	})
}

func (p *statesPair) thaw(s stateSequence) error {
	start := p.starts[s.Start]
	if s.Start == "empty" {
		start = p.starts[fmt.Sprint("empty", s.Level)]
	}
	err := p.a.thaw(start[0])
	if !s.Alone && err == nil {
		err = p.b.thaw(start[1])
	}
	return err
}

// exchange makes both sites exchange what is new until they fall silent.
func (p *statesPair) exchange() error {
	for range 20 {
		m, err := p.a.send(&p.a.from, &p.a.beat)
		if err != nil {
			return fmt.Errorf("a to b: %w", err)
		}
		n, err := p.b.send(&p.b.from, &p.b.beat)
		if err != nil {
			return fmt.Errorf("b to a: %w", err)
		}
		if m+n == 0 {
			return nil
		}
	}
	return errors.New("the sites never fall silent")
}

// converge makes both sites exchange until they agree, at the latest after comparisons.
func (p *statesPair) converge() error {
	for compared := range 4 {
		if err := p.exchange(); err != nil {
			return err
		}
		if disputed(p.a.view(), p.b.view())+disputed(p.b.view(), p.a.view()) == "" {
			return nil
		}
		if compared == 3 {
			break
		}
		for _, s := range []*statesSite{p.a, p.b} { // comparisons leave out what is new
			if err := s.pass(15 * time.Second); err != nil {
				return err
			}
		}
		if _, err := p.a.repair(); err != nil {
			return fmt.Errorf("a compares: %w", err)
		}
		if _, err := p.b.repair(); err != nil {
			return fmt.Errorf("b compares: %w", err)
		}
		// What one site evicted comes again from the other once its client renews it, see Removal.outdates.
		if err := errors.Join(p.a.renewAllBut(p.b.view()), p.b.renewAllBut(p.a.view())); err != nil {
			return err
		}
	}
	return fmt.Errorf("the sites do not agree:\na: %s\nb: %s", disputed(p.a.view(), p.b.view()), disputed(p.b.view(), p.a.view()))
}

// renewAllBut makes clients renew the instances that another state does not have. One without a status is not found,
// and its client registers it again.
func (s *statesSite) renewAllBut(v *registry.View) error {
	var items []fsm.Item
	for l := range s.view().All() {
		if _, ok := v.Find(l.Key()); ok {
			continue
		}
		items = append(items, fsm.Item{Origin: registry.FromClient, Op: registry.Renew{Key: l.Key()}})
		if again := *l.Instance; again.Status == registry.Unknown && !l.Permanent {
			again.Status, again.LastDirty = registry.Up, 0
			items[len(items)-1].Op = registry.Register{Instance: &again}
		}
	}
	_, err := s.perform(items...)
	return err
}

// disputed returns the instances that differ between two states. Those of the third party do not count: it
// contradicts itself, as no server does, and would compare with both sites. Nor do services that both have by
// Consul's API: below level 3 their checks, which are not replicated, decide the status of each.
func disputed(v, w *registry.View) (text string) {
	for l := range v.All() {
		m, ok := w.Find(l.Key())
		if l.Owner == "dc9" || ok && (m.Owner == "dc9" || l.Service != nil && m.Service != nil) {
			continue
		}
		if !ok || m.Sum() != l.Sum() {
			saved, err := json.Marshal(v.SavedOf(l)) // everything that Sum covers
			text += fmt.Sprintf("\n    %s status %v, reported %v, overridden %v: %s%v", l.Key(), l.Instance.Status, registry.Status(v.ReplicaOf(l, 0).Instance.Status), l.Instance.Overridden, saved, cmp.Or(err, nil))
		}
	}
	return text
}

// do performs a step.
func (p *statesPair) do(s *stateSequence, step *stateStep) error {
	at, both := p.a, []*statesSite{p.a, p.b}
	if s.Alone {
		both = both[:1]
	}
	if step.Far && !s.Alone {
		at = p.b
	}
	for _, site := range both {
		if step.Pass > 0 {
			if err := site.pass(step.Pass); err != nil {
				return err
			}
		}
	}
	switch step.Does {
	case "batch":
		_, err := at.perform(at.may(step.items)...)
		return err
	case "message":
		var errs []error
		for _, site := range both {
			var ops []registry.Op
			for _, it := range step.items {
				ops = append(ops, it.Op)
			}
			errs = append(errs, site.receive(step.Local && !site.consensus, site.now.Lease, ops...))
		}
		return errors.Join(errs...)
	case "exchange":
		if !s.Alone {
			return p.exchange()
		}
	case "restart":
		return at.startOver()
	case "lead":
		if at.consensus {
			settings := registry.DefaultSettings()
			return at.establish(&settings, 0)
		}
	case "raise":
		return at.raise()
	default:
		return fmt.Errorf("a step does %q", step.Does)
	}
	return nil
}

// try runs a sequence; more, if not nil, draws its steps on the way. It returns a panic anywhere as an error.
func (p *statesPair) try(s *stateSequence, more func() *stateStep) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%.3000s", cause, debug.Stack())
		}
	}()
	if err := p.thaw(*s); err != nil {
		return err
	}
	for i := 0; ; i++ {
		if more != nil {
			step := more()
			if step == nil {
				break
			}
			s.Steps = append(s.Steps, *step)
		}
		if i == len(s.Steps) {
			break
		}
		if err := p.do(s, &s.Steps[i]); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, s.Steps[i].Does, err)
		}
	}
	p.a.observe()
	if s.Alone {
		return p.a.check()
	}
	p.b.observe()
	if err := p.converge(); err != nil {
		return err
	}
	p.a.observe()
	p.b.observe()
	return errors.Join(p.a.check(), p.b.check())
}

// drawn draws the nth sequence: of one operation, of two, or of many.
func (p *statesPair) drawn(n uint64, rows []stateRow, d *stateDraw, s *stateSequence) func() *stateStep {
	length, first, second := 3+d.IntN(20), -1, -1
	count := n / 16
	switch n / 2 % 8 {
	case 0:
		length, first = 1, int(count%uint64(len(rows)))
	case 1, 2:
		length, first, second = 2, int(count%uint64(len(rows))), int(count/uint64(len(rows))%uint64(len(rows)))
	}
	// related ones, neighbours in the tables, and some others: they interact more often
	if length > 2 && d.IntN(4) > 0 {
		at := d.IntN(len(rows))
		kin := slices.Clone(rows[at:min(len(rows), at+3+d.IntN(4))])
		for _, r := range rows {
			if _, txn := r.zero.(kv.Txn); txn && d.IntN(2) == 0 { // the operation that can fail in most ways
				kin = append(kin, r)
			}
		}
		for range d.IntN(4) {
			kin = append(kin, pick(d, rows))
		}
		rows = kin
	}
	step := 0
	return func() *stateStep {
		if step == length {
			return nil
		}
		row := d.IntN(len(rows))
		if step == 0 && first >= 0 {
			row = first
		}
		if step == 1 && second >= 0 {
			row = second
		}
		step++
		return p.step(rows, row, d, s, length > 2)
	}
}

func (p *statesPair) step(rows []stateRow, row int, d *stateDraw, s *stateSequence, other bool) *stateStep {
	step := &stateStep{Far: d.IntN(2) == 0, Does: "batch"}
	if d.site = p.a; step.Far && !s.Alone {
		d.site = p.b
	}
	if d.IntN(2) == 0 {
		step.Pass = pick(d, []time.Duration{time.Second, 11 * time.Second, 61 * time.Second, time.Millisecond, time.Hour})
		if !s.Alone {
			step.Pass = min(step.Pass, 61*time.Second)
		}
	}
	if kind := d.IntN(20); other && kind < 4 {
		step.Does = []string{"exchange", "restart", "lead", "raise"}[kind]
		return step
	}
	step.items = append(step.items, d.row(rows[row]))
	if restore, ok := step.items[0].KV.(kv.Restore); ok && d.IntN(2) == 0 { // of what was staged just before
		restore.Parts = 1
		step.items = []fsm.Item{{KV: kv.StagePart{ID: restore.ID, Content: d.part()}}, {KV: restore}}
	}
	for other && d.IntN(3) == 0 {
		step.items = append(step.items, d.row(rows[d.IntN(len(rows))]))
	}
	if s.Alone {
		for i := range step.items {
			if it := &step.items[i]; it.KV == nil && d.IntN(4) == 0 {
				*it = fsm.Item{Op: it.Op, Origin: pick(d, []registry.Origin{registry.FromEureka, {Kind: registry.LocalPeer}, {Kind: registry.RemoteDC, DC: "dc9"}})}
			}
		}
	}
	if first := step.items[:1]; isMessage(first) && (!s.Alone || d.IntN(2) == 0) {
		step.Does, step.Local, step.items = "message", d.IntN(2) == 0, first
	} else if !s.Alone {
		step.items = slices.DeleteFunc(step.items, func(it fsm.Item) bool { return isMessage([]fsm.Item{it}) })
	}
	return step
}

// isMessage reports whether servers send each other such operations.
func isMessage(items []fsm.Item) bool {
	for _, it := range items {
		switch it.Op.(type) {
		case registry.Replica, registry.Remove:
		default:
			return false
		}
	}
	return true
}

// shorten leaves out steps, and items of steps, as long as the sequence still fails, and returns the error of what is
// left.
func (p *statesPair) shorten(s stateSequence, failed error) (stateSequence, error) {
	fails := func(steps []stateStep) bool {
		shorter := s
		shorter.Steps = steps
		err := p.try(&shorter, nil)
		if err != nil {
			s, failed = shorter, err
		}
		return err != nil
	}
	for n := len(s.Steps); n > 0; n /= 2 {
		for at := 0; at+n <= len(s.Steps); {
			if !fails(slices.Delete(slices.Clone(s.Steps), at, at+n)) {
				at += n
			}
		}
	}
	for i := 0; i < len(s.Steps); i++ {
		for j := 0; len(s.Steps[i].items) > 1 && j < len(s.Steps[i].items); {
			steps := slices.Clone(s.Steps)
			steps[i].items = slices.Delete(slices.Clone(steps[i].items), j, j+1)
			if !fails(steps) {
				j++
			}
		}
	}
	return s, failed
}

// statesEnv has the number of sequences; statesSeedEnv is the seed of the first one. The gate always tries the same.
const (
	statesEnv     = "ROLLCALL_STATES"
	statesSeedEnv = "ROLLCALL_STATES_SEED"
	statesOfGate  = 6000
)

func stateNumber(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	if text := os.Getenv(name); text != "" {
		return need.Got(strconv.ParseUint(text, 10, 64))(t)
	}
	return otherwise
}

// Every operation, alone, in pairs and in sequences, in states that are empty, small and full, at sites of both modes
// that replicate to each other.
func TestStates(t *testing.T) {
	seed, count := stateNumber(t, statesSeedEnv, 1), stateNumber(t, statesEnv, statesOfGate)
	t.Logf("%s=%d %s=%d", statesSeedEnv, seed, statesEnv, count)
	seen := map[string]map[string]int{}
	pairs := map[string]*statesPair{}
	for _, sites := range stateSites {
		pairs[sites] = newStatesPair(t, sites, func(it fsm.Item, outcome string) {
			row := stateRowOf(it)
			if seen[row] == nil {
				seen[row] = map[string]int{}
			}
			seen[row][outcome]++
		})
	}
	failures, began, values, n := 0, time.Now(), statesValues(), uint64(0)
	for ; n < count && failures < 5; n++ {
		s, err := stateTried(pairs, &stateDraw{Rand: rand.New(rand.NewPCG(seed, n)), values: values}, n)
		if err == nil {
			continue
		}
		s, err = pairs[s.Sites].shorten(s, err)
		text := need.Got(json.MarshalIndent(s, "", " "))(t)
		t.Errorf("sequence %d of seed %d: %v\nshortened, which testdata/states may keep:\n%s", n, seed, err, text)
		failures++
	}
	t.Logf("%d of %d sequences in %v", n, count, time.Since(began))
	checkStatesSeen(t, seen)
}

// stateTried tries the nth sequence. Its draws depend only on seed and number.
func stateTried(pairs map[string]*statesPair, d *stateDraw, n uint64) (stateSequence, error) {
	s := stateSequence{Sites: []string{"cp-cp", "ap-ap", "cp-cp", "cp-ap"}[d.IntN(4)], Start: stateStarts[[]int{0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2}[d.IntN(16)]], Level: byte(codec.Oldest + d.IntN(codec.Newest)), Alone: d.IntN(4) > 0}
	p := pairs[s.Sites]
	d.alone, d.level = s.Alone, s.Level
	rows := stateRows()
	if s.Sites == "ap-ap" {
		rows = slices.DeleteFunc(rows, func(r stateRow) bool { return strings.HasPrefix(r.name, "kv.") })
	}
	return s, p.try(&s, p.drawn(n, rows, d, &s))
}

// A new row is drawn without any change here, unless it has a field of a new kind.
func TestStatesDrawEveryOperation(t *testing.T) {
	p := newStatesPair(t, "cp-cp", func(fsm.Item, string) {})
	d := &stateDraw{Rand: rand.New(rand.NewPCG(1, 1)), site: p.a, values: statesValues()}
	for _, r := range stateRows() {
		func() {
			defer func() {
				missing := recover()
				expect.That(t, missing == nil, "operation %s: %v", r.name, missing)
			}()
			for range 200 {
				it := d.row(r)
				_, again, err := fsm.ParseBatch(fsm.AppendBatch(nil, codec.Newest, fsm.BatchID{}, []fsm.Item{it}))
				need.That(t, err == nil && stateRowOf(again[0]) == r.name, "%s was drawn as %+v, which is written and read as %+v, %v", r.name, it, again, err)
			}
		}()
	}
}

// What failed once is kept.
func TestStatesFoundOnce(t *testing.T) {
	for _, file := range need.Got(filepath.Glob("testdata/states/*.json"))(t) {
		var s stateSequence
		need.OKf(t, json.Unmarshal(need.Got(os.ReadFile(file))(t), &s), "%s", file)
		p := newStatesPair(t, s.Sites, func(fsm.Item, string) {})
		expect.That(t, p.try(&s, nil) == nil, "%s: %v", file, p.try(&s, nil))
	}
}
