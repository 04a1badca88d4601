package batcher

// order is a list of holders, oldest first. The links are in the holders, so that one can be taken out
// of the middle at once. A holder is in one order at most.
type order[K comparable, T any] struct{ head, tail *holder[K, T] }

func (o *order[K, T]) append(h *holder[K, T]) {
	h.before = o.tail
	if o.tail == nil {
		o.head = h
	} else {
		o.tail.after = h
	}
	o.tail = h
}

func (o *order[K, T]) prepend(h *holder[K, T]) {
	h.after = o.head
	if o.head == nil {
		o.tail = h
	} else {
		o.head.before = h
	}
	o.head = h
}

func (o *order[K, T]) remove(h *holder[K, T]) {
	if h.before == nil {
		o.head = h.after
	} else {
		h.before.after = h.after
	}
	if h.after == nil {
		o.tail = h.before
	} else {
		h.after.before = h.before
	}
	h.before, h.after = nil, nil
}
