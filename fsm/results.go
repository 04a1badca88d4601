package fsm

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// BatchResult is the answer to one batch of an entry.
type BatchResult struct {
	ID BatchID
	// Refused: the batch was numbered at or below what its node reports as answered, or came from an
	// older boot; it had no effect now, and earlier it may have had one.
	Refused bool
	// Late: the batch came to the leader, or stands in the log, after its Bound. This copy of it had no
	// effect; another may take effect.
	Late    bool
	Results []registry.Result // one per item; shared with the machine's memory, not to be changed
	// KV are the results of the operations of coordination, one per item (zero for the others); nil: the
	// batch has none.
	KV []kv.Result
}

// AppendResults appends the encoding of a batch's results, for the node-to-node channel.
func AppendResults(dst []byte, r BatchResult) []byte {
	c := codec.Writer(dst, codec.Level)
	r.fields(&c)
	return c.Written()
}

// ParseResults is the inverse of AppendResults. Errors wrap ErrNewerVersion or ErrCorrupt. Nothing
// returned refers to b.
func ParseResults(b []byte) (BatchResult, error) {
	c := codec.Reader(b)
	var r BatchResult
	r.fields(&c)
	if err := c.End(); err != nil {
		return BatchResult{}, fmt.Errorf("results of a batch: %w", err)
	}
	return r, nil
}

func (r *BatchResult) fields(c *codec.Codec) {
	c.Version()
	r.ID.fields(c)
	c.Bool(&r.Refused)
	c.Bool(&r.Late)
	walkResults(c, &r.Results, &r.KV)
}

// walkResults walks the results of a batch's operations, and those of coordination: none, or one for each.
func walkResults(c *codec.Codec, results *[]registry.Result, coordination *[]kv.Result) {
	codec.List(c, results, 1, (*registry.Result).Fields)
	codec.List(c, coordination, 1, (*kv.Result).Fields)
	if n := len(*coordination); n != 0 && n != len(*results) {
		c.Fail("%d results of coordination for %d operations", n, len(*results))
	}
}
