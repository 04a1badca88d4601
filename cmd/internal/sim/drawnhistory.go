package sim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// operation is what a client did to one key or instance.
type operation struct {
	do     string // put, cas, delete, cancel, read, back (a key's restore), return (an instance's)
	value  int    // written by it; no two writes have the same
	expect int    // for a cas, the value that it replaces
	values []int  // for a restore, what it may bring back
}

// result is what the client was told.
type result struct {
	outcome Outcome // for a cas of another value, NotFound
	value   int     // value read, or 0
}

// registerModel models a key, or an instance with a number, as a register, which is 0 while it does not exist. An
// operation of unknown outcome takes effect within its bound, or never.
var registerModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{0} },
	Step: func(state, input, output any) []any {
		op, r, now := input.(operation), output.(result), state.(int)
		becomes := func(is bool, values ...int) (states []any) {
			if r.outcome == Unknown {
				is, values = true, append(values, now)
			}
			if is {
				for _, v := range values {
					states = append(states, v)
				}
			}
			return states
		}
		switch op.do {
		case "put":
			return becomes(true, op.value)
		case "cas":
			if now != op.expect {
				return becomes(r.outcome == NotFound, now)
			}
			return becomes(r.outcome == Done, op.value)
		case "delete":
			return becomes(true, 0)
		case "cancel":
			return becomes((now != 0) == (r.outcome == Done), 0)
		case "back":
			return becomes(true, append([]int{0}, op.values...)...)
		case "return":
			if now != 0 {
				return becomes(true, now)
			}
			return becomes(true, append([]int{0}, op.values...)...)
		default:
			return becomes(r.value == now, now)
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v = %+v", input, output) },
}

// history holds the operations of one key or instance.
type history struct {
	name       string
	instance   bool
	pair       bool // two keys that are written together
	operations []porcupine.Operation
	next       int // value to write
}

// histories holds the histories of a run: when one is full, its kind goes on with another key.
type histories struct {
	l *load

	mu  sync.Mutex
	all []*history
	now map[string]*history // by kind
}

// startHistories has clients work on keys and on instances.
func (l *load) startHistories() {
	h := &histories{l: l, now: map[string]*history{}}
	l.d.histories = h
	for client := range 2 {
		out := time.Duration(client) * 37 * time.Millisecond // out of step with the other client
		l.task(900*time.Millisecond+out, func() { h.step(client, "key") })
		l.task(time.Second+out, func() { h.step(client, "instance") })
	}
}

// current returns the history that has room, and a value to write.
func (h *histories) current(kind string) (*history, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now[kind]
	if now == nil || len(now.operations) >= perKey-20 { // leaves room for the last reads, and for restores
		now = &history{name: fmt.Sprintf("%s-%d", kind, len(h.all)), instance: kind == "instance", pair: kind == "pair"}
		h.all = append(h.all, now)
		h.now[kind] = now
	}
	now.next++
	return now, now.next
}

// step makes one operation, and often reads the result at once at any node.
func (h *histories) step(client int, kind string) {
	on, value := h.current(kind)
	if on.instance {
		do := []string{"put", "put", "read", "cancel"}[h.l.draw(4)]
		h.add(client, on, operation{do: do, value: value}, func() result { return h.l.onInstance(on, do, value) })
	} else {
		h.stepKey(client, on, value)
	}
	if h.l.draw(2) == 0 {
		h.add(client, on, operation{do: "read"}, func() result { return h.l.read(on) })
	}
}

// behind writes at once through nodes whose links an act has just cut. What waits there must not take effect once
// later writes have been acknowledged.
func (h *histories) behind(act string, nodes []string) {
	if h == nil || !slices.Contains([]string{"cut", "cutoneway", "isolate"}, act) {
		return
	}
	for _, node := range nodes {
		if h.l.w.Node(node).dc != 1 {
			continue
		}
		for _, kind := range []string{"key", "instance", "pair"} {
			h.l.d.beside.Go(func() {
				on, value := h.current(kind)
				h.add(2, on, operation{do: "put", value: value}, func() result { return h.l.put(node, on, value) })
			})
		}
	}
}

// put writes a key or registers an instance at a node.
func (l *load) put(node string, on *history, value int) result {
	if on.pair {
		return l.onPair(node, on, "put", value, 0)
	}
	method, path, body := "PUT", "/v1/kv/h/"+on.name, strconv.Itoa(value)
	if on.instance {
		method, path = "POST", "/eureka/apps/LINEAR"
		body = Registration("LINEAR", on.name, longLease, map[string]string{"n": body})
	}
	return result{outcome: l.write(node, method, path, body).Outcome()}
}

// read reads a key or an instance.
func (l *load) read(on *history) result {
	if on.instance {
		return l.onInstance(on, "read", 0)
	}
	r, _ := l.readKey(on)
	return r
}

// stepKey makes one operation on a key.
func (h *histories) stepKey(client int, on *history, value int) {
	do := []string{"put", "cas", "cas", "read", "delete"}[h.l.draw(5)]
	if do != "cas" {
		h.add(client, on, operation{do: do, value: value}, func() result { return h.l.onKey(on, do, value, 0) })
		return
	}
	var index uint64
	read := operation{do: "read"}
	seen := h.add(client, on, read, func() result {
		var r result
		r, index = h.l.readKey(on)
		return r
	})
	if seen.outcome == Done || seen.outcome == NotFound {
		op := operation{do: do, value: value, expect: seen.value}
		h.add(client, on, op, func() result { return h.l.onKey(on, do, value, index) })
	}
}

// add makes an operation and keeps it, unless it certainly changed nothing and returned nothing.
func (h *histories) add(client int, on *history, op operation, do func() result) result {
	asked := time.Since(began)
	r := do()
	returned := time.Since(began)
	h.l.count(op.do, r.outcome)
	if r.outcome == Unknown {
		returned += unknownTakes
	}
	read := op.do == "read"
	if r.outcome == Refused || read && r.outcome == Unknown {
		return r
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	on.operations = append(on.operations, porcupine.Operation{
		ClientId: client, Input: op, Output: r, Call: int64(asked), Return: int64(returned),
	})
	return r
}

// repeat adds that the operation with a value may have taken effect once more meanwhile.
func (h *histories) repeat(on *history, value int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	again := on.operations[slices.IndexFunc(on.operations, func(op porcupine.Operation) bool { return op.Input.(operation).value == value })]
	again.ClientId, again.Output = 8, result{outcome: Unknown}
	on.operations = append(on.operations, again)
}

// onInstance registers, cancels or reads an instance.
func (l *load) onInstance(on *history, do string, value int) result {
	path := "/eureka/apps/LINEAR/" + on.name
	switch do {
	case "put":
		return l.put(l.node(), on, value)
	case "cancel":
		return result{outcome: l.write(l.node(), "DELETE", path, "").Outcome()}
	}
	r := l.ask("read", l.node(), "GET", path, "")
	if r.Status != http.StatusOK {
		return result{outcome: r.Outcome()}
	}
	n, err := NumberOf(r)
	if err != nil {
		n = -1 // never registered
	}
	return result{outcome: Done, value: n}
}

// onKey writes, deletes or reads a key.
func (l *load) onKey(on *history, do string, value int, index uint64) result {
	path := "/v1/kv/h/" + on.name
	if on.pair && do != "read" {
		return l.onPair(l.node(), on, do, value, index)
	}
	switch do {
	case "put":
		return l.put(l.node(), on, value)
	case "delete":
		return result{outcome: l.write(l.node(), "DELETE", path, "").Outcome()}
	case "cas":
		r := l.write(l.node(), "PUT", fmt.Sprintf("%s?cas=%d", path, index), strconv.Itoa(value))
		if r.Status == http.StatusOK && r.Body == "false" {
			return result{outcome: NotFound}
		}
		return result{outcome: r.Outcome()}
	}
	r, _ := l.readKey(on)
	return r
}

// readKey reads a key, and also returns its index, or 0 if the key does not exist.
func (l *load) readKey(on *history) (result, uint64) {
	if on.pair {
		return l.readPair(l.node(), on, "")
	}
	path := "/v1/kv/h/" + on.name
	var pairs []Pair
	floor := l.reads.newestOf(path)
	node := l.node()
	r := l.ask("read", node, "GET", path, "")
	if r.Status == http.StatusOK || r.Status == http.StatusNotFound {
		l.reads.linearizable(l, node, path, floor, r)
	}
	if !r.decode(&pairs) || len(pairs) != 1 {
		return result{outcome: r.Outcome()}, 0
	}
	n, err := strconv.Atoi(string(pairs[0].Value))
	if err != nil {
		n = -1 // never written
	}
	return result{outcome: Done, value: n}, pairs[0].ModifyIndex
}

// finish reads every key once more, and adds the restores.
func (h *histories) finish() {
	for _, on := range h.all {
		h.add(0, on, operation{do: "read"}, func() result { return h.l.read(on) })
	}
	for _, r := range h.l.d.restores {
		if r.outcome == Refused {
			continue
		}
		for _, on := range h.all {
			h.restored(on, r)
		}
	}
}

// restored adds a restore to a history: it may bring back whatever had been written when its snapshot was saved.
func (h *histories) restored(on *history, r restoring) {
	do, values := map[bool]string{false: "back", true: "return"}[on.instance], []int(nil)
	for _, op := range on.operations {
		if in := op.Input.(operation); (in.do == "put" || in.do == "cas") && op.Call <= int64(r.saved.Sub(began)) {
			values = append(values, in.value)
		}
	}
	on.operations = append(on.operations, porcupine.Operation{
		ClientId: 9, Input: operation{do: do, values: values}, Output: result{outcome: r.outcome},
		Call: int64(r.from.Sub(began)), Return: int64(r.to.Sub(began) + unknownTakes),
	})
	if on.instance {
		return
	}
	for i, op := range on.operations { // a restored key has another index, so a refused cas says nothing
		if op.Input.(operation).do == "cas" && op.Output.(result).outcome == NotFound && op.Return >= int64(r.from.Sub(began)) {
			on.operations[i].Output = result{outcome: Unknown}
		}
	}
}

// judge checks that some order of each key's operations explains what clients were told.
func (h *histories) judge(check checker) {
	h.finish()
	for _, on := range h.all {
		h.explain(check, on, &registerModel)
	}
}

// explain checks that some order of the operations on one key explains what clients were told.
func (h *histories) explain(check checker, on *history, model *porcupine.NondeterministicModel) {
	if len(on.operations) > perKey {
		h.l.w.Errorf("I2 linearizable: %s has %d operations, more than the checker is known to decide", on.name, len(on.operations))
	}
	operations := endUnknown(on.operations, func(op porcupine.Operation) bool {
		return op.Output.(result).outcome == Unknown
	}, func(op porcupine.Operation) bool {
		return op.Output.(result).outcome == Done && op.Input.(operation).do != "read"
	})
	if result := check.run(model.ToModel(), operations); result != porcupine.Ok {
		h.l.w.Errorf("I2 linearizable: no order explains the operations on %s (%s):\n%s", on.name, result, describe(operations))
	}
}
